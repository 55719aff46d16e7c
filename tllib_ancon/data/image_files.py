"""Images as they come from files, datasets and loaders, as RGB with 8 bits a channel or as float tensors."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from tllib_ancon.runtime.errors import BadImages, UserError, named, one_line

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "JPEG2000")
"""What is decoded. Pillow knows more, and starts another program (Ghostscript) for one of them."""

LOADER = f"pass {named('loader')}, a function of its path that"

MOST_BANDS = 4
SAMPLES_PER_PIXEL = 277
"""Tag of a TIFF: its number of bands."""

CHANNELS = (1, 3)
"""Numbers of channels of an array that is an image."""

EXPECTED = (
    "expected a PIL image, bytes (H, W) or (H, W, 3) in an array or (1 or 3, H, W) in a tensor, or a float array or "
    "tensor, which the model gets unchanged"
)


def decoded(file: BinaryIO, name: str) -> Image.Image:
    """The image in a file as RGB, of an animation the first frame."""
    with _naming(name), warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        image = Image.open(file, formats=FORMATS)
        return _as_rgb(image, name)


def image_of(value: Any, name: str) -> Image.Image | Tensor:
    """An item of a dataset, or what a loader returns: PIL images and bytes as RGB, floats as a float32 tensor."""
    if isinstance(value, Image.Image):
        with _naming(name):
            return _as_rgb(value, name)
    if isinstance(value, np.ndarray | Tensor):
        kind = kind_of(value)
        if "float" in kind and value.ndim:
            return _finite(torch.as_tensor(value).detach().cpu().float(), name)
        pixels = _channels_last(value)
        if kind == "uint8" and pixels.size and (pixels.ndim == 2 or pixels.shape[2:] == (3,)):
            return Image.fromarray(pixels).convert("RGB")
    raise BadImages(f"{name}: {described(value)} is no image", EXPECTED)


def described(value: Any) -> str:
    """An object of the user in a message: of an array its shape and the type of its numbers."""
    if isinstance(value, np.ndarray | Tensor):
        return f"{type(value).__name__} {tuple(value.shape)} {kind_of(value)}"
    return one_line(repr(value))[:80]


def kind_of(array: Any) -> str:
    """The type of the numbers in an array or tensor by NumPy's name; empty for everything else."""
    return str(getattr(array, "dtype", "")).removeprefix("torch.")


def jpeg(image: Image.Image | Tensor) -> bytes:
    """JPEG for people: rotated by its EXIF entry, no side above 1,600 pixels, without metadata. A tensor (1 or 3, H, W)
    is scaled by its own range."""
    if isinstance(image, Tensor):
        return jpeg(_picture_of(image))
    upright = image
    with suppress(Exception):  # Pillow's reader of EXIF raises many types; then it lies as models see it
        upright = ImageOps.exif_transpose(image)
    shown = upright.convert("RGB")
    shown.thumbnail((1600, 1600))
    shown.info.clear()
    content = io.BytesIO()
    shown.save(content, "JPEG", quality=95, subsampling=0)
    return content.getvalue()


def _picture_of(tensor: Tensor) -> Image.Image:
    if tensor.ndim != 3 or tensor.shape[0] not in CHANNELS:
        raise BadImages(
            f"a tensor of shape {tuple(tensor.shape)} cannot be shown", "label images (1 or 3, H, W), or by a file"
        )
    least, most = tensor.aminmax()
    scaled = (tensor - least) / (most - least).clamp(min=1e-12)
    pixels = scaled.mul(255).byte().movedim(0, -1).numpy()
    return Image.fromarray(pixels.squeeze(-1) if len(tensor) == 1 else pixels)


def _as_rgb(image: Image.Image, name: str) -> Image.Image:
    beyond = _beyond_rgb(image)
    if beyond is not None:
        content, way_to_rgb = beyond
        raise BadImages(f"{name} has {content}", f"{way_to_rgb}: {LOADER} does", setting="loader")
    return image.convert("RGB")


def _beyond_rgb(image: Image.Image) -> tuple[str, str] | None:
    """What an image has that RGB with 8 bits a channel has not, and how it becomes such an image."""
    tiles = str(getattr(image, "tile", ""))  # how its bytes are arranged: Pillow drops the lower half of RGB;16
    if image.mode.startswith(("I", "F")) or ";16" in tiles:
        return "more than 8 bits a channel", "scale it to bytes by one range for all images"
    if image.format != "TIFF":
        return None
    bands = int(getattr(image, "tag_v2", {}).get(SAMPLES_PER_PIXEL, 1))
    if bands > MOST_BANDS:
        return f"{bands} bands", "choose those that the model takes"
    pages = int(getattr(image, "n_frames", 1))
    if pages > 1:
        return f"{pages} pages", "choose one"
    return None


def _channels_last(value: NDArray[Any] | Tensor) -> NDArray[Any]:
    """An array (H, W[, C]) or a tensor (C, H, W) as an array (H, W[, 3])."""
    if isinstance(value, Tensor):
        pixels = value.cpu().movedim(0, -1).numpy() if value.ndim == 3 else value.cpu().numpy()
    else:
        pixels = value
    if pixels.shape[2:] == (1,):
        return pixels[..., 0]
    return np.ascontiguousarray(pixels)


def _finite(tensor: Tensor, name: str) -> Tensor:
    if not tensor.isfinite().all():
        raise BadImages(f"{name}: it has NaN or infinity", "remove it or fill it in")
    return tensor


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Turn any error of a decoder into one line that names the image."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # Pillow's decoders raise many types
        reason = one_line(error)
        if isinstance(error, UnidentifiedImageError):
            reason = f"it is no {', '.join(FORMATS)} that Pillow reads"
        raise BadImages(
            f"{name}: cannot be decoded ({reason})", f"remove or repair it, or {LOADER} reads it"
        ) from error
