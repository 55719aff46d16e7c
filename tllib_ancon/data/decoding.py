"""Pictures decoded to RGB."""

from __future__ import annotations

import os
import stat
import warnings
from typing import BinaryIO

import numpy as np
from PIL import Image, UnidentifiedImageError

from tllib_ancon.errors import UserError, one_line

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
"""What is decoded. Pillow knows more, and starts another program (Ghostscript) for one of them."""


def load_image(path: str) -> Image.Image:
    """Decode one image as RGB.

    Raises:
        UserError: the file is missing, is no regular file or cannot be decoded (with its path)
    """
    _require_file(path)
    try:
        file = open(path, "rb")  # noqa: SIM115 (the next block closes it)
    except OSError as error:
        raise UserError(f"image {path}: cannot be read ({error.strerror})") from error
    with file:
        return decode(file, f"image {path}")


def _require_file(path: str) -> None:
    """Refuse what is no regular file: a pipe would be waited for without end.

    Raises:
        UserError: the file is missing or of another kind (with its path)
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        raise UserError(f"image {path}: file not found") from None
    if not stat.S_ISREG(mode):
        raise UserError(f"image {path}: it is no regular file")


def decode(file: BinaryIO, name: str) -> Image.Image:
    """Decode one image as RGB; of an animated one the first frame. EXIF orientation is not applied.

    Args:
        file: the bytes
        name: of the image, for the error

    Raises:
        UserError: it cannot be decoded (why)
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return to_rgb(Image.open(file, formats=FORMATS))
    except UnidentifiedImageError:
        raise UserError(f"{name}: cannot be decoded (it is no {', '.join(FORMATS)})") from None
    except Exception as error:  # Pillow's decoders raise many types
        raise UserError(f"{name}: cannot be decoded ({one_line(error)})") from error


def to_rgb(image: Image.Image) -> Image.Image:
    """The same picture with three channels of 8 bits.

    Raises:
        ValueError: it holds values that are not finite
    """
    return _require_finite(_eight_bit(image)).convert("RGB")


def _eight_bit(image: Image.Image) -> Image.Image:
    """A 16-bit picture scaled to 8 bits, which Pillow would clip."""
    if not image.mode.startswith("I"):
        return image
    return Image.fromarray((np.asarray(image).clip(0, 65_535) / 257).astype(np.uint8))


def _require_finite(image: Image.Image) -> Image.Image:
    if image.mode == "F" and not np.isfinite(np.asarray(image)).all():
        raise ValueError("it holds values that are not finite")
    return image
