"""A stand-in where ImageNet-C is absent: corruptions of torchvision at five strengths over any folder of images.

This is **not ImageNet-C**: neither its pictures, nor its corruptions, nor its strengths. Numbers on it say how methods
compare on corrupted pictures, and nothing about the paper's tables.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from zlib import crc32

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

from tllib_ancon.data.decoding import load_image
from tllib_ancon.data.image_folder import SUFFIXES
from tllib_ancon.errors import UserError, unknown_name

CLEAN = "clean"
"""Folder of the uncorrupted half, to train a source model on."""

NOTICE = "NOT_IMAGENET_C.txt"
REFERENCE_SIDE = 224
"""Lengths in pixels are given for pictures of this shorter side."""

STRENGTHS = {
    "gaussian_noise": (0.04, 0.08, 0.12, 0.18, 0.26),
    "gaussian_blur": (1.0, 1.7, 2.5, 3.5, 5.0),
    "contrast": (0.6, 0.45, 0.3, 0.2, 0.1),
    "brightness": (1.3, 1.6, 1.9, 2.2, 2.6),
    "saturate": (0.5, 0.2, 2.0, 4.0, 8.0),
    "posterize": (5, 4, 3, 2, 1),
    "jpeg_compression": (30, 20, 14, 9, 5),
    "pixelate": (0.6, 0.45, 0.33, 0.25, 0.17),
    "elastic_transform": (25.0, 50.0, 75.0, 110.0, 150.0),
}
"""Corruption -> its parameter at strengths 1 to 5: standard deviation of pixels in [0, 1], blur in pixels, factors of
contrast, brightness and saturation, bits a channel, JPEG quality, share of the resolution kept, displacement."""


def corrupt(image: Tensor, corruption: str, strength: int) -> Tensor:
    """Corrupt one picture by functions of torchvision.transforms.v2 and, for JPEG, of Pillow.

    Args:
        corruption: a key of :data:`STRENGTHS`
        strength: 1 (weak) to 5 (strong)

    Shape: image (3, H, W) uint8; output the same. What is random follows torch's generator.

    Raises:
        UserError: another corruption or strength
    """
    if corruption not in STRENGTHS:
        raise unknown_name("corruption", corruption, STRENGTHS)
    if not 1 <= strength <= 5:
        raise UserError(f"strength {strength} of {corruption}: expected 1 to 5")
    return _FUNCTIONS[corruption](image, STRENGTHS[corruption][strength - 1])


def write_stand_in(images: Path, folder: Path, domains: Sequence[str], say: Callable[[str], None]) -> None:
    """Write half of a folder of pictures as ``clean/class/*`` and the other half as ``corruption/strength/class/*``.

    What is there already is kept; a domain is written whole or not at all.

    Args:
        images: holds a folder a class, with pictures
        folder: receives the domains, in ImageNet-C's layout
        domains: ``corruption/strength``
        say: shows one line of progress

    Raises:
        UserError: no class folders with pictures here; a picture that cannot be decoded
    """
    if not images.is_dir():
        raise UserError(f"{images} is not a folder; give a folder of class folders with pictures")
    classes = sorted(path for path in images.iterdir() if path.is_dir())
    by_class = [sorted(path for path in name.iterdir() if path.suffix.lower() in SUFFIXES) for name in classes]
    if sum(map(len, by_class)) < 2:
        raise UserError(f"{images} holds no pictures in class folders; the layout is class/*.jpg")
    halves = [[path for paths in by_class for path in paths[first::2]] for first in (0, 1)]
    for domain in (CLEAN, *domains):
        if not (folder / domain).is_dir():
            say(f"writing {folder / domain}")
            _write_domain(halves[domain != CLEAN], folder, domain)
    (folder / NOTICE).write_text(f"{__doc__}\nPictures of {images.name}.\n")


def _write_domain(paths: Sequence[Path], folder: Path, domain: str) -> None:
    partial = folder / f"{domain}.partial"
    for path in paths:
        copy = partial / path.parent.name / f"{path.stem}.png"
        copy.parent.mkdir(parents=True, exist_ok=True)
        image = F.pil_to_tensor(load_image(str(path)))
        if domain != CLEAN:
            corruption, _, strength = domain.partition("/")
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(crc32(f"{domain} {path.parent.name}/{path.name}".encode()))
                image = corrupt(image, corruption, int(strength))
        F.to_pil_image(image).save(copy, compress_level=1)
    shutil.move(partial, folder / domain)


def _gaussian_noise(image: Tensor, deviation: float) -> Tensor:
    noisy = F.gaussian_noise(F.to_dtype(image, torch.float32, scale=True), sigma=deviation)
    scaled: Tensor = F.to_dtype(noisy, torch.uint8, scale=True)
    return scaled


def _gaussian_blur(image: Tensor, pixels: float) -> Tensor:
    sigma = max(_scaled(image, pixels), 0.1)
    limit = (min(image.shape[-2:]) - 1) // 2
    side = 2 * min(round(3 * sigma) or 1, limit) + 1
    blurred: Tensor = F.gaussian_blur(image, [side, side], [sigma, sigma])
    return blurred


def _jpeg_compression(image: Tensor, quality: float) -> Tensor:
    file = io.BytesIO()
    F.to_pil_image(image).save(file, "JPEG", quality=int(quality))
    compressed: Tensor = F.pil_to_tensor(Image.open(file))
    return compressed


def _pixelate(image: Tensor, share: float) -> Tensor:
    height, width = image.shape[-2:]
    small = F.resize(image.float(), [max(1, round(height * share)), max(1, round(width * share))], antialias=True)
    coarse: Tensor = F.resize(small.round().byte(), [height, width], interpolation=v2.InterpolationMode.NEAREST)
    return coarse


def _elastic_transform(image: Tensor, displacement: float) -> Tensor:
    transform = v2.ElasticTransform(alpha=_scaled(image, displacement), sigma=max(_scaled(image, 5.0), 0.5))
    bent: Tensor = transform(image)
    return bent


def _scaled(image: Tensor, pixels: float) -> float:
    return pixels * min(image.shape[-2:]) / REFERENCE_SIDE


_FUNCTIONS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "gaussian_noise": _gaussian_noise,
    "gaussian_blur": _gaussian_blur,
    "contrast": F.adjust_contrast,
    "brightness": F.adjust_brightness,
    "saturate": F.adjust_saturation,
    "posterize": lambda image, bits: F.posterize(image, int(bits)),
    "jpeg_compression": _jpeg_compression,
    "pixelate": _pixelate,
    "elastic_transform": _elastic_transform,
}
