"""Datasets over a domain: with labels for a source and for evaluation, without for adaptation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

from tllib_ancon.data.domain import Domain
from tllib_ancon.errors import UserError

Transform = Callable[[Image.Image], Any]

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
"""What is decoded. Pillow knows more, and starts another program (Ghostscript) for one of them."""


def load_image(path: str) -> Image.Image:
    """Decode one image as RGB.

    Raises:
        UserError: the file is missing or cannot be decoded (with its path)
    """
    try:
        with warnings.catch_warnings(), open(path, "rb") as file:
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return _require_finite(_eight_bit(Image.open(file, formats=FORMATS))).convert("RGB")
    except FileNotFoundError:
        raise UserError(f"image {path}: file not found") from None
    except Exception as error:  # Pillow's decoders raise many types
        raise UserError(f"image {path}: cannot be decoded ({error})") from error


def _eight_bit(image: Image.Image) -> Image.Image:
    """A 16-bit picture scaled to 8 bits, which Pillow would clip."""
    if not image.mode.startswith("I"):
        return image
    return Image.fromarray((np.asarray(image).clip(0, 65_535) / 257).astype(np.uint8))


def _require_finite(image: Image.Image) -> Image.Image:
    if image.mode == "F" and not np.isfinite(np.asarray(image)).all():
        raise ValueError("it holds values that are not finite")
    return image


class DomainImages(Dataset):
    """Images of a domain, each item decided by its key and the seed alone.

    A key is ``epoch * N + index``; :class:`~tllib_ancon.data.sampling.EpochSampler` makes them. The transform's random
    numbers come from (seed, key), so that an epoch has the same tensors whatever the number of workers.

    Args:
        domain (Domain): what to read
        transform (callable): PIL image -> tensor; its attribute ``read``, if it has one, reads a path for it
        seed (int): of the augmentation. Default: 0
    """

    def __init__(self, domain: Domain, transform: Transform, seed: int = 0):
        self.domain = domain
        self.transform = transform
        self.seed = seed
        self.read = getattr(transform, "read", load_image)

    def __len__(self) -> int:
        return len(self.domain)

    def image(self, key: int) -> Any:
        image = self.read(self.domain.samples[key % len(self)].path)
        with seeded(item_seed(self.seed, key)):
            return self.transform(image)


class UnlabelledImages(DomainImages):
    """Items (index, image): what adaptation may see."""

    def __getitem__(self, key: int) -> tuple[int, Any]:
        return key % len(self), self.image(key)


class LabelledImages(DomainImages):
    """Items (image, label): a source domain, or a target domain under evaluation."""

    def __getitem__(self, key: int) -> tuple[Any, int]:
        return self.image(key), self.domain.samples[key % len(self)].label


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """In this context torch's random numbers on the CPU start from ``seed``; after it they go on as before."""
    generator = torch.default_generator
    state = generator.get_state()
    try:
        generator.manual_seed(seed)
        yield
    finally:
        generator.set_state(state)


def item_seed(seed: int, key: int) -> int:
    """A well-mixed 63-bit number from a seed and a key (the finaliser of SplitMix64)."""
    mask = (1 << 64) - 1
    value = (seed * 0x9E3779B97F4A7C15 + key + 0x9E3779B97F4A7C15) & mask
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return (value ^ (value >> 31)) >> 1
