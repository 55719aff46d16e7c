"""The fifteen corruptions of CIFAR-10-C at five severities.

Source: Hendrycks & Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", ICLR
2019, and the recipe that made the published files, ``make_cifar_c.py`` of hendrycks/robustness. The constants are those
of the recipe for CIFAR-10. Images are (N, 32, 32, 3), and within this module in [0, 1].
"""

import io
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image
from scipy import ndimage

SIDE = 32
AT_ONCE = 1000
"""Images that are in memory as floats at one time."""


def corrupted(images, name, severity, seed=0, frost=Path()):
    """The same images with one corruption.

    Args:
        images: (N, 32, 32, 3)
        name: one of ``CORRUPTIONS``
        severity: 1 to 5
        seed: of all random numbers; the same seed gives the same images
        frost: the folder of the recipe's frost1.png to frost5.jpg, which only ``frost`` needs
    """
    corruption = CORRUPTIONS[name]
    if name == "frost":
        corruption = partial(corruption, pictures=_frost_pictures(frost))
    random = np.random.default_rng(seed)
    made = np.empty_like(images)
    for start in range(0, len(images), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        made[part] = _bytes(corruption(images[part] / 255, severity, random))
    return made


def gaussian_noise(images, severity, random):
    deviation = (0.04, 0.06, 0.08, 0.09, 0.10)[severity - 1]
    return images + random.normal(scale=deviation, size=images.shape)


def shot_noise(images, severity, random):
    photons = (500, 250, 100, 75, 50)[severity - 1]
    return random.poisson(images * photons) / photons


def impulse_noise(images, severity, random):
    share = (0.01, 0.02, 0.03, 0.05, 0.07)[severity - 1]
    replaced = random.random(images.shape) <= share
    white = random.random(images.shape) <= 0.5
    return np.where(replaced, white, images)


def defocus_blur(images, severity, _):
    radius, deviation = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))[severity - 1]
    rows, columns = np.ogrid[-2:3, -2:3]
    disk = (rows**2 + columns**2 <= radius**2).astype(np.float32)
    bell = _bell(np.arange(-1, 2), deviation)
    kernel = ndimage.convolve(disk / disk.sum(), np.outer(bell, bell))
    return ndimage.convolve(images, kernel[None, :, :, None], mode="mirror")


def glass_blur(images, severity, random):
    """Each pixel takes the value of a neighbour. The paper swaps the two; the recipe's views of one array copy."""
    deviation, most, times = ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))[severity - 1]
    sigma = (0, deviation, deviation, 0)
    shuffled = _bytes(ndimage.gaussian_filter(images, sigma, mode="nearest"))
    each = np.arange(len(images))
    places = range(SIDE - most, most, -1)
    for row, column in times * [(row, column) for row in places for column in places]:
        right, down = random.integers(-most, most, size=(2, len(images)))
        shuffled[:, row, column] = shuffled[each, row + down, column + right]
    return ndimage.gaussian_filter(shuffled / 255, sigma, mode="nearest")


def motion_blur(images, severity, random):
    radius, deviation = ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))[severity - 1]
    return _moved(images, radius, deviation, random.uniform(-45, 45, size=len(images)))


def zoom_blur(images, severity, _):
    factors = np.arange(1, (1.06, 1.11, 1.16, 1.21, 1.26)[severity - 1], 0.01)
    return (images + sum(_zoomed(images, factor) for factor in factors)) / (len(factors) + 1)


def snow(images, severity, random):
    mean, deviation, zoom, least, radius, blur, kept = (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    )[severity - 1]
    flakes = _zoomed(random.normal(mean, deviation, size=(*images.shape[:3], 1)), zoom)
    flakes = _bytes(np.where(flakes < least, 0, flakes)) / 255
    flakes = _moved(flakes, int(radius), blur, random.uniform(-135, -45, size=len(images)))
    grey = images @ np.array([[0.299], [0.587], [0.114]])
    whitened = np.maximum(images, grey * 1.5 + 0.5)
    return kept * images + (1 - kept) * whitened + flakes + flakes[:, ::-1, ::-1]


def frost(images, severity, random, pictures):
    kept, added = ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))[severity - 1]
    made = _bytes(images).astype(float)
    for image in made:
        picture = pictures[int(random.integers(len(pictures)))]
        row, column = (random.integers(0, side - SIDE) for side in picture.shape[:2])
        image[:] = kept * image + added * picture[row : row + SIDE, column : column + SIDE]
    np.floor(made, out=made)
    return made / 255


def fog(images, severity, random):
    density, decay = ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))[severity - 1]
    brightest = images.max((1, 2, 3), keepdims=True)
    foggy = images + density * _plasma(len(images), decay, random)[..., None]
    return foggy * brightest / (brightest + density)


def brightness(images, severity, _):
    """The value of HSV grows, hue and saturation stay."""
    added = (0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1]
    value = images.max(-1, keepdims=True)
    hue = np.divide(images, value, out=np.ones_like(images), where=value > 0)
    return hue * np.minimum(value + added, 1)


def contrast(images, severity, _):
    kept = (0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1]
    means = images.mean((1, 2), keepdims=True)
    return (images - means) * kept + means


def elastic_transform(images, severity, random):
    """A random affine map, of which three points move, and then a smooth random displacement of every pixel."""
    scale, smoothness, moved = (
        (0, 0, 0.08),
        (0.05, 0.2, 0.07),
        (0.08, 0.06, 0.06),
        (0.1, 0.04, 0.05),
        (0.1, 0.03, 0.03),
    )[severity - 1]
    points = np.array([[26, 26], [26, 6], [6, 6]], dtype=np.float32)
    targets = points + random.uniform(-moved * SIDE, moved * SIDE, size=(len(images), 3, 2)).astype(np.float32)
    ones = np.ones((len(images), 3, 1))
    inverse = np.linalg.solve(np.concatenate((targets, ones), -1), np.broadcast_to(points, targets.shape))
    axis = np.arange(SIDE)[:, None]
    by_column = np.rint(1024 * axis * inverse[:, :1])
    by_row = np.rint(1024 * (axis * inverse[:, 1:2] + inverse[:, 2:]))
    places = (by_row[:, :, None] + by_column[:, None] + 16) // 32 / 32  # in the steps of the recipe's library
    images = _sampled(images, places[..., 1], places[..., 0], mode="mirror")
    rows, columns = axis, axis.T

    def displacement():
        noise = random.uniform(-1, 1, size=images.shape[:3])
        sigma = (0, smoothness * SIDE, smoothness * SIDE)
        return ndimage.gaussian_filter(noise, sigma, mode="reflect", truncate=3) * scale * SIDE

    right, down = displacement(), displacement()
    return _sampled(images, rows + down, columns + right, mode="reflect")


def pixelate(images, severity, _):
    side = (30, 28, 27, 24, 20)[severity - 1]

    def coarse(picture):
        small = picture.resize((side, side), Image.Resampling.BOX)
        return small.resize((SIDE, SIDE), Image.Resampling.BOX)

    return _by_pillow(images, coarse)


def jpeg_compression(images, severity, _):
    quality = (80, 65, 58, 50, 40)[severity - 1]

    def compressed(picture):
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return _by_pillow(images, compressed)


CORRUPTIONS = {
    corruption.__name__: corruption
    for corruption in (
        gaussian_noise, shot_noise, impulse_noise, defocus_blur, glass_blur, motion_blur, zoom_blur, snow, frost, fog,
        brightness, contrast, elastic_transform, pixelate, jpeg_compression,
    )
}  # fmt: skip
"""In the recipe's order. Each takes images in [0, 1], a severity and the generator of its random numbers."""


def _bytes(images):
    """[0, 1] -> 0 to 255, rounded down as the recipe's."""
    return (np.clip(images, 0, 1) * 255).astype(np.uint8)


def _by_pillow(images, change):
    pictures = (Image.fromarray(image) for image in _bytes(images))
    return np.stack([np.asarray(change(picture)) for picture in pictures]) / 255


def _frost_pictures(folder):
    """Every fifth pixel of the recipe's pictures. It has six of them and draws among the first five."""
    paths = [Path(folder) / f"frost{number}.{'png' if number < 4 else 'jpg'}" for number in range(1, 6)]
    return [np.asarray(Image.open(path).convert("RGB"))[2::5, 2::5] for path in paths]


def _bell(distances, deviation):
    weights = np.exp(-(distances**2) / (2 * deviation**2))
    return weights / weights.sum()


def _moved(images, radius, deviation, angles):
    """Blurred to one side as by ImageMagick: half a bell along an angle, in 16 bits, of which 8 stay."""
    steps = np.arange(2 * radius + 1)
    radians = np.deg2rad(angles)[:, None]
    right, down = (np.ceil(steps * side(radians) - 0.5).astype(int) for side in (np.cos, np.sin))
    rows, columns = np.mgrid[:SIDE, :SIDE]
    each = np.arange(len(images))[:, None, None]
    total = np.zeros_like(images)
    for step, weight in enumerate(_bell(steps, deviation)):
        row = np.clip(rows + down[:, step, None, None], 0, SIDE - 1)
        column = np.clip(columns + right[:, step, None, None], 0, SIDE - 1)
        total += weight * images[each, row, column]
    return np.floor(total * 65535 + 0.5) // 257 / 255


def _zoomed(images, factor):
    """The middle of the images, enlarged by linear interpolation to their size."""
    side = int(np.ceil(SIDE / factor))
    first = (SIDE - side) // 2
    enlarged = round(side * factor)
    trimmed = (enlarged - SIDE) // 2
    places = first + np.arange(trimmed, trimmed + SIDE) * (side - 1) / (enlarged - 1)
    weights = np.maximum(0, 1 - np.abs(places[:, None] - np.arange(SIDE)))
    tall = np.tensordot(images, weights, (1, 1))  # (N, columns, channels, new rows)
    return np.tensordot(tall, weights, (1, 1)).transpose(0, 2, 3, 1)


def _plasma(number, decay, random):
    """Fractal height maps in [0, 1], (number, 32, 32), by the diamond-square algorithm; the edges meet."""
    heights = np.zeros((number, SIDE, SIDE))
    amplitude = 100.0

    def displaced(four):
        return four / 4 + amplitude * random.uniform(-amplitude, amplitude, size=four.shape)

    step = SIDE
    while step >= 2:
        half = step // 2
        corners = heights[:, ::step, ::step]
        pairs = corners + np.roll(corners, -1, 1)
        heights[:, half::step, half::step] = displaced(pairs + np.roll(pairs, -1, 2))
        centres = heights[:, half::step, half::step]
        beside = (centres + np.roll(centres, 1, 1)) + (corners + np.roll(corners, -1, 2))
        heights[:, ::step, half::step] = displaced(beside)
        beside = (centres + np.roll(centres, 1, 2)) + (corners + np.roll(corners, -1, 1))
        heights[:, half::step, ::step] = displaced(beside)
        step = half
        amplitude /= decay
    heights -= heights.min((1, 2), keepdims=True)
    return heights / heights.max((1, 2), keepdims=True)


def _sampled(images, rows, columns, mode):
    """Values between the pixels, linearly interpolated; (N, 32, 32) of rows and columns.

    Args:
        mode: beyond its edges an image is mirrored, with the last pixel twice (``reflect``) or once (``mirror``)
    """
    sampled = np.empty_like(images)
    for image, *place, values in zip(images, rows, columns, sampled, strict=True):
        for channel in range(3):
            ndimage.map_coordinates(image[..., channel], place, values[..., channel], order=1, mode=mode)
    return sampled
