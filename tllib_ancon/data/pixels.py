"""Samples of an image as bytes: deep samples by one range of values for a data set, the bands of a TIFF, the largest
image."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, BinaryIO
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, UnidentifiedImageError
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from tllib_ancon.config.images import ImageConfig
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.extras import require

Values = NDArray[Any]
PixelRange = tuple[float, float]

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "JPEG2000")
"""What is decoded. Pillow knows more, and starts another program (Ghostscript) for one of them."""

TIFF_BEGINNINGS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
# Tags of a TIFF
BITS_PER_SAMPLE = 258
PHOTOMETRIC = 262
SAMPLES_PER_PIXEL = 277
EXTRA_SAMPLES = 338
# Values of the tag PHOTOMETRIC
GREY = 1
RGB = 2
TWO_BYTES = ("RGB;16", "RGBA;16", "RGBX;16")
"""How Pillow calls colours of 16 bits."""
PILLOW_BANDS = 6
"""Bands of a TIFF at most that Pillow opens."""
ALPHA = ((1,), (2,))
"""Values of the tag EXTRA_SAMPLES of a TIFF whose only additional band is its opacity."""

DEPTHS = (8, 10, 12, 14, 16, 20, 24, 32)
"""Bits of a sensor; the smallest that hold every value of the sampled images decide the range."""

MOST_SAMPLED = 64
"""Images of a data set from which its range is decided."""

BEYOND = 2.0
"""Values above this multiple of a recorded range's upper end belong to another scale."""

_pillow_limit = threading.Lock()


@dataclass(frozen=True)
class Decoding:
    """How image files become bytes.

    Args:
        pixel_range: values of deep samples, of more than 8 bits, that become black and white. Default: decided by the
            images of the data set
        bands: bands of a TIFF, counted from 1. Default: the first three
        max_megapixels: largest image that is decoded, in millions of pixels
    """

    pixel_range: PixelRange | None = None
    bands: tuple[int, ...] | None = None
    max_megapixels: int = 256

    @classmethod
    def of(cls, config: ImageConfig) -> Decoding:
        """As the settings of images say."""
        return cls(config.pixel_range, config.bands, config.max_megapixels)


@dataclass(frozen=True)
class Samples:
    """Samples of one image: an image of 8 bits that Pillow converts to RGB, or ``values`` (H, W) or (H, W, 3)."""

    image: Image.Image | None = None
    values: Values | None = None
    bands: int = 0  # of a TIFF that has more bands than are used
    has_more_pages: bool = False  # pages of a TIFF or frames of an animation, of which the first is used

    def to_rgb(self, pixel_range: PixelRange | None) -> Image.Image:
        """Three channels of 8 bits. Deep values below and above the range are clipped."""
        if self.values is None:
            assert self.image is not None
            return self.image.convert("RGB")
        _require_finite_values(self.values)
        if pixel_range is None:
            raise UserError(
                "it has more than 8 bits a channel, and the other images have 8; pass the values that become black "
                "and white as `pixel_range`"
            )
        low, high = pixel_range
        factor = np.float32(255 / (high - low))
        scaled = (self.values.astype(np.float32) - np.float32(low)) * factor
        scaled += 1e-4  # so that rounding leaves whole numbers where they are
        return Image.fromarray(scaled.clip(0, 255).astype(np.uint8)).convert("RGB")


@dataclass(frozen=True)
class PixelValues:
    """What the sampled images of a data set hold, and the range that follows from it.

    Attributes:
        images: number of images that were opened
        deep: number of these with more than 8 bits a sample
        is_float: whether one of these holds floating-point numbers
        least, most: smallest and largest value of the deep images
        bands: largest number of bands of a TIFF of which not all are used; 0 for none
        several_pages: number of images in files with further pages or frames, which are not used
    """

    images: int = 0
    deep: int = 0
    is_float: bool = False
    least: float = 0.0
    most: float = 0.0
    bands: int = 0
    several_pages: int = 0

    @classmethod
    def of(cls, samples: Iterable[Samples]) -> PixelValues:
        images = 0
        bands = 0
        several_pages = 0
        is_float = False
        ends: list[tuple[float, float]] = []
        for sample in samples:
            images += 1
            bands = max(bands, sample.bands)
            several_pages += sample.has_more_pages
            values = sample.values
            if values is not None and np.isfinite(values).all():
                is_float = is_float or values.dtype.kind == "f"
                ends.append((float(values.min()), float(values.max())))
        least = min((low for low, _ in ends), default=0.0)
        most = max((high for _, high in ends), default=0.0)
        return cls(images, len(ends), is_float, least, most, bands, several_pages)

    @property
    def pixel_range(self) -> PixelRange | None:
        """Values that become black and white; None where every sampled image has 8 bits.

        Raises:
            UserError: negative values, whose range no rule decides
        """
        if not self.deep:
            return None
        if self.least < 0:
            raise UserError(
                f"pixel values range from {self.least:g} to {self.most:g}, and negative ones have no usual range; pass "
                "the values that become black and white as `pixel_range`"
            )
        if self.is_float and self.most <= 1:
            return (0.0, 1.0)
        depth = next((bits for bits in DEPTHS if self.most <= 2.0**bits - 1), None)
        if depth is None:  # numbers beyond every sensor
            return (0.0, self.most)
        return (0.0, 2.0**depth - 1)

    def lines(self, pixel_range: PixelRange | None, bands: tuple[int, ...] | None) -> list[str]:
        """Lines for the user about images that are no plain ones of 8 bits."""
        lines = []
        if self.deep and pixel_range is not None:
            kind = "numbers" if self.is_float else "integers"
            low, high = pixel_range
            lines.append(
                f"pixels are {kind} from {self.least:g} to {self.most:g} in {self.deep:,} of {self.images:,} sampled "
                f"images: {low:g} becomes black and {high:g} white; `pixel_range` changes it"
            )
        if self.bands:
            used = ", ".join(map(str, bands or usual_bands(self.bands)))
            lines.append(f"the TIFFs have {self.bands} bands, of which {used} are used; `bands` chooses others")
        if self.several_pages:
            lines.append(self.line_on_pages)
        return lines

    @property
    def line_on_pages(self) -> str:
        return (
            f"{self.several_pages:,} of {self.images:,} sampled images are in files of several pages or frames, of "
            "which the first is used; save the others as files of their own"
        )


def chosen_range(
    values: PixelValues, setting: PixelRange | None, recorded: PixelRange | None
) -> tuple[PixelRange | None, list[str]]:
    """The range of a data set and lines about it: the user's, or that of the model's run, or by sampled images.

    The range of the run is used for images on its scale.

    Raises:
        UserError: a range for images of 8 bits alone
    """
    if setting is not None and values.images and not values.deep:
        raise UserError("`pixel_range` has no effect on images with 8 bits a channel; leave it out")
    if setting is not None or not values.deep:
        return setting, []
    if recorded is None:
        return values.pixel_range, []
    low, high = recorded
    if values.least >= low and values.most <= BEYOND * high:
        return (low, high), []
    by_images = values.pixel_range
    line = f"the model's run has pixel_range {low:g} {high:g}, and these images are on another scale"
    return by_images, [line]


def usual_bands(count: int) -> tuple[int, ...]:
    return (1,) if count < 3 else (1, 2, 3)


def read_samples(file: BinaryIO, decoding: Decoding) -> Samples:
    """The samples of one image file; of several pages or frames the first."""
    if _is_tiff(file):
        return _samples_of_tiff(file, decoding)
    image = _open_image(file, decoding.max_megapixels)
    if image.format != "PNG" or not _is_deep_colour(image):
        return samples_of(image)
    if not _keeps_upper_bytes(image):
        raise UserError("grey with opacity in 16 bits; save it without opacity")
    return Samples(values=_two_bytes(image, _reopened(file)), has_more_pages=_has_more_pages(image))


def _samples_of_tiff(file: BinaryIO, decoding: Decoding) -> Samples:
    tags = _tags(file)
    band_count = int(tags.get(SAMPLES_PER_PIXEL, 1))
    if band_count > PILLOW_BANDS:
        return _read_tiff(file, decoding, f"Pillow reads up to {PILLOW_BANDS} bands")
    try:
        image = _open_image(file, decoding.max_megapixels)
    except UnidentifiedImageError:
        if not tags:
            raise
        return _read_tiff(file, decoding, "Pillow reads no TIFF of this kind")
    is_deep = _is_deep_colour(image)
    if band_count > 1 and decoding.bands is not None:
        return _read_tiff(file, decoding, "Pillow reads the first three bands")
    if is_deep and not _keeps_upper_bytes(image):
        return _read_tiff(file, decoding, "Pillow keeps 8 bits of each")
    if is_deep:
        samples = Samples(values=_two_bytes(image, _reopened(file)), has_more_pages=_has_more_pages(image))
    else:
        samples = samples_of(image)
    return replace(samples, bands=_unused_bands(image))


def samples_of(image: Image.Image) -> Samples:
    """The samples of an image that Pillow opened."""
    has_more_pages = _has_more_pages(image)
    if image.mode == "F" or image.mode.startswith("I"):
        return Samples(values=np.asarray(image), has_more_pages=has_more_pages)
    return Samples(image, has_more_pages=has_more_pages)


def _has_more_pages(image: Image.Image) -> bool:
    """Whether the file of an image has pages or frames after the first."""
    return bool(getattr(image, "is_animated", False))


def _open_image(file: BinaryIO, max_megapixels: int) -> ImageFile.ImageFile:
    """Open one image, whose pixels are not decoded yet.

    Raises:
        UserError: more pixels than the limit, which Pillow has at 179 million
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            image = Image.open(file, formats=FORMATS)
        except Image.DecompressionBombError:
            image = _reopened(file)
    _require_size(*image.size, max_megapixels)
    return image


def _require_size(width: int, height: int, max_megapixels: int) -> None:
    if width * height > max_megapixels * 1_000_000:
        megapixels = width * height / 1e6
        raise UserError(
            f"{width} x {height} pixels are {megapixels:,.0f} megapixels, above the limit of {max_megapixels}; shrink "
            "the image, or raise `max_megapixels`"
        )


def _require_finite_values(values: Values) -> None:
    if not np.isfinite(values).all():
        raise ValueError("it holds NaN or infinity; fill these pixels in, or save it with 8 bits a channel")


def _is_tiff(file: BinaryIO) -> bool:
    file.seek(0)
    beginning = file.read(4)
    file.seek(0)
    return beginning in TIFF_BEGINNINGS


def _unused_bands(image: Image.Image) -> int:
    """The number of bands of a TIFF that has more than colours and opacity; 0 for every other image."""
    tags: Any = getattr(image, "tag_v2", {})
    count = int(tags.get(SAMPLES_PER_PIXEL, 1))
    colours = {GREY: 1, RGB: 3}.get(int(tags.get(PHOTOMETRIC, -1)), count)
    is_opacity = count == colours + 1 and tuple(tags.get(EXTRA_SAMPLES, ())) in ALPHA
    return count if count > colours and not is_opacity else 0


def _is_deep_colour(image: ImageFile.ImageFile) -> bool:
    """Whether an image has several channels of more than 8 bits. Pillow keeps only the upper 8 of such channels."""
    tags: Any = getattr(image, "tag_v2", {})
    band_count = int(tags.get(SAMPLES_PER_PIXEL, 1))
    if band_count > 1 and max(tags.get(BITS_PER_SAMPLE, (1,))) > 8:
        return True
    if image.format != "PNG" or image.mode.startswith("I"):
        return False
    return any(";16" in _raw_mode(tile) for tile in image.tile)


def _keeps_upper_bytes(image: ImageFile.ImageFile) -> bool:
    return all(_raw_mode(tile).startswith(TWO_BYTES) for tile in image.tile)


def _raw_mode(tile: Any) -> str:
    """How the bytes of a tile of an image file are arranged."""
    arguments = tile[3]
    return str(arguments if isinstance(arguments, str) else arguments[0])


def _two_bytes(image: Image.Image, reopened: ImageFile.ImageFile) -> Values:
    """(H, W, 3) of 16 bits, of an image whose upper bytes Pillow keeps; opened again in the other order of bytes it
    keeps the lower ones."""
    reopened.tile = [_with_arguments(tile, _with_swapped_bytes(tile[3])) for tile in reopened.tile]
    upper: Values = np.asarray(image)[..., :3].astype(np.uint16)
    lower: Values = np.asarray(reopened)[..., :3]
    return 256 * upper + lower


def _with_arguments(tile: Any, arguments: Any) -> Any:
    """A tile whose bytes are arranged in another way; from Pillow 11 on it is a named tuple."""
    if hasattr(tile, "_replace"):
        return tile._replace(args=arguments)
    return (*tile[:3], arguments)


def _with_swapped_bytes(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return (_with_swapped_bytes(arguments[0]), *arguments[1:])
    order = arguments[-1]
    if order == "N":
        order = "L" if sys.byteorder == "little" else "B"
    swapped = {"L": "B", "B": "L"}
    return arguments[:-1] + swapped.get(order, "L")


def _reopened(file: BinaryIO) -> ImageFile.ImageFile:
    file.seek(0)
    with _pillow_limit, patch.object(Image, "MAX_IMAGE_PIXELS", None):
        return Image.open(file, formats=FORMATS)


def _read_tiff(file: BinaryIO, decoding: Decoding, reason: str) -> Samples:
    """The first page of a TIFF by tifffile, which has every number of bands and bits."""
    purpose = f"a TIFF of {_bands_and_bits(file)} ({reason})"
    require(purpose, "tifffile", extra="tiff", alternative=", or save three bands with 8 bits each")
    import tifffile

    file.seek(0)
    with tifffile.TiffFile(file) as tiff:
        page: Any = tiff.pages[0]
        _require_size(page.imagewidth, page.imagelength, decoding.max_megapixels)
        planes = _bands_last(page)
        num_opacity = sum(int(kind) in (1, 2) for kind in page.extrasamples)
        has_more_pages = bool(tiff.pages.is_multipage)
    count = planes.shape[-1]
    chosen = decoding.bands or usual_bands(count)
    if max(chosen) > count:
        raise UserError(f"`bands` names band {max(chosen)}, and this TIFF has {count} bands; choose from 1 to {count}")
    unused = 0
    if count - num_opacity > len(chosen):
        unused = count
    values = planes[..., [band - 1 for band in chosen]]
    if len(chosen) == 1:
        values = values[..., 0]
    if values.dtype == np.uint8:
        return Samples(Image.fromarray(values), bands=unused, has_more_pages=has_more_pages)
    return Samples(values=values, bands=unused, has_more_pages=has_more_pages)


def _bands_last(page: Any) -> Values:
    """The pixels (H, W, bands) of a page of a TIFF."""
    planes: Values = page.asarray()
    if planes.ndim == 2:
        return planes[..., None]
    if page.axes.startswith("S"):
        return np.moveaxis(planes, 0, -1)
    return planes


def _bands_and_bits(file: BinaryIO) -> str:
    """Number of bands and bits of a TIFF, in words."""
    tags = _tags(file)
    bits = max(tags.get(BITS_PER_SAMPLE, (1,)))
    return f"{tags.get(SAMPLES_PER_PIXEL, 1)} bands of {bits} bits"


def _tags(file: BinaryIO) -> Mapping[int, Any]:
    """The tags of a TIFF's first page, none of a damaged one; the file is at its beginning afterwards."""
    tags: Mapping[int, Any] = {}
    with suppress(Exception):
        file.seek(0)
        beginning = file.read(8)
        is_big = beginning[:4] in TIFF_BEGINNINGS[2:]
        directory = ImageFileDirectory_v2(beginning + file.read(8) if is_big else beginning)
        file.seek(directory.next)
        directory.load(file)
        tags = dict(directory)
    file.seek(0)
    return tags
