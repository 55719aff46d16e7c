"""Images as they come from files, datasets and loaders, as RGB with 8 bits a channel or as float tensors."""

from __future__ import annotations

import io
import warnings
from contextlib import suppress
from typing import Any, BinaryIO

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from tllib_ancon.runtime.errors import BadImages, named, one_line, reading

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "JPEG2000")
"""What is decoded. Pillow knows more, and starts another program (Ghostscript) for one of them."""

MOST_BANDS = 4
SAMPLES_PER_PIXEL = 277
"""Tag of a TIFF: its number of bands."""

CHANNELS = (1, 3)
"""Numbers of channels of an array that is an image."""

EXPECTED = (
    "expected a PIL image, bytes (H, W) or (H, W, 3) in an array or (1 or 3, H, W) in a tensor, or a float array or "
    "tensor, which the model gets unchanged"
)


def load_image(path: str) -> Image.Image:
    """Decode one file."""
    with reading(f"image {path}", "an image", _left_out()), open(path, "rb") as file:
        return decoded(file, f"image {path}")


def decoded(file: BinaryIO, name: str) -> Image.Image:
    """The image in a file as RGB, of an animation the first frame."""
    with reading(name, "an image", _left_out()), warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            image = Image.open(file, formats=FORMATS)
        except UnidentifiedImageError as error:
            raise BadImages(
                f"{name} is no {', '.join(FORMATS)} that Pillow reads",
                f"{_left_out()}; open a file of arrays or a table and pass its array of images or its paths",
            ) from error
        action = f"pass {named('loader')}, a function of its path that returns an image or a float tensor"
        return _as_rgb(image, name, action, "loader")


def _left_out() -> str:
    """What to do with files that cannot be read."""
    return (
        f"repair or remove it, pass {named('loader')}, a function of its path that reads it, or pass "
        f"{named('skip_corrupt', True)} to leave such images out"
    )


def image_of(value: Any, name: str, setting: str = "") -> Image.Image | Tensor:
    """An item of a dataset, or what a loader returns: PIL images and bytes as RGB, floats as a float32 tensor."""
    if isinstance(value, Image.Image):
        with reading(name, "an image"):
            action = "convert it to an image of 8 bits, or to a float tensor, which the model gets unchanged"
            return _as_rgb(value, name, action, setting)
    kind = kind_of(value)
    if kind == "uint8" and _is_picture(value):
        return _picture_of(value).convert("RGB")
    if "float" not in kind or not value.ndim:
        raise BadImages(f"{name} returns {described(value)}", EXPECTED, setting)
    tensor = as_floats(value)
    if not tensor.isfinite().all():
        raise BadImages(f"{name} returns NaN or infinity", "remove it or fill it in", setting)
    return tensor


def as_floats(array: Any) -> Tensor:
    """An array or tensor as float32 on the CPU; an array is copied."""
    if isinstance(array, Tensor):
        return array.detach().cpu().float()
    return torch.from_numpy(np.array(array, dtype=np.float32))


def described(value: Any) -> str:
    """An object of the user in a message: of an array its shape and the type of its numbers."""
    kind = kind_of(value)
    if kind:
        return f"{type(value).__name__} {tuple(value.shape)} {kind}"
    return one_line(repr(value))[:80]


def kind_of(array: Any) -> str:
    """The type of the numbers in an array or tensor by NumPy's name; empty for everything else."""
    return str(getattr(array, "dtype", "")).removeprefix("torch.")


def jpeg(image: Image.Image | Tensor) -> bytes:
    """JPEG for people: rotated by its EXIF entry, no side above 1,600 pixels, without metadata. A tensor (1 or 3, H, W)
    is scaled by its own range."""
    if isinstance(image, Tensor):
        return jpeg(_shown(image))
    upright = image
    with suppress(Exception):  # Pillow's reader of EXIF raises many types; then it lies as models see it
        upright = ImageOps.exif_transpose(image)
    picture = upright.convert("RGB")
    picture.thumbnail((1600, 1600))
    picture.info.clear()
    content = io.BytesIO()
    picture.save(content, "JPEG", quality=95, subsampling=0)
    return content.getvalue()


def _shown(tensor: Tensor) -> Image.Image:
    from torchvision.utils import make_grid

    if not _is_picture(tensor) or tensor.ndim == 2:
        raise BadImages(
            f"a tensor of shape {tuple(tensor.shape)} cannot be shown", "label images (1 or 3, H, W), or by a file"
        )
    return _picture_of(make_grid(tensor, normalize=True))


def _picture_of(value: Any) -> Image.Image:
    from torchvision.transforms.functional import to_pil_image  # it starts slowly

    picture: Image.Image = to_pil_image(value)
    return picture


def _is_picture(value: Any) -> bool:
    """Whether an array is (H, W) or (H, W, 1 or 3), or a tensor (H, W) or (1 or 3, H, W)."""
    channels = value.shape[0] if isinstance(value, Tensor) else value.shape[-1]
    return 0 not in value.shape and (value.ndim == 2 or (value.ndim == 3 and channels in CHANNELS))


def _as_rgb(image: Image.Image, name: str, action: str, setting: str) -> Image.Image:
    if _is_beyond_rgb(image):
        raise BadImages(
            f"{name} has more than 8 bits a channel, more than {MOST_BANDS} bands or several pages",
            action,
            setting,
        )
    return image.convert("RGB")


def _is_beyond_rgb(image: Image.Image) -> bool:
    tiles = str(getattr(image, "tile", ""))  # how its bytes are arranged: Pillow drops the lower half of RGB;16
    if image.mode.startswith(("I", "F")) or ";16" in tiles:
        return True
    if image.format != "TIFF":
        return False
    tags = getattr(image, "tag_v2", {})
    return int(tags.get(SAMPLES_PER_PIXEL, 1)) > MOST_BANDS or getattr(image, "n_frames", 1) > 1
