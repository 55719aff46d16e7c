"""Where images come from, decoded to RGB: files, the items of a dataset, a column of Hugging Face."""

import hashlib
import io
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from tllib_ancon.errors import UserError, one_line, reading

Positions = NDArray[np.int64]
Bytes = NDArray[np.uint8]

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "JPEG2000")
"""What is decoded. Pillow knows more, and starts another program (Ghostscript) for one of them."""

IMAGE_NAMES = ("image", "img")
"""Keys of a dataset's items that hold an image; the first that is there is taken."""


def jpeg(image: Image.Image) -> bytes:
    """JPEG for people: rotated by its EXIF entry, no side above 1,600 pixels, without metadata."""
    with suppress(Exception):  # Pillow's reader of EXIF raises many types; then it lies as models see it
        image = ImageOps.exif_transpose(image)
    shown = image.convert("RGB")
    shown.thumbnail((1600, 1600))
    shown.info.clear()
    content = io.BytesIO()
    shown.save(content, "JPEG", quality=95, subsampling=0)
    return content.getvalue()


def load_image(path: str) -> Image.Image:
    with reading(f"image {path}", "an image"), open(path, "rb") as file:
        return decode(file, f"image {path}")


def decode(file: BinaryIO, name: str) -> Image.Image:
    """Decode one image as RGB; of an animated one the first frame. EXIF orientation is not applied."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return to_rgb(Image.open(file, formats=FORMATS))
    except UnidentifiedImageError:
        raise UserError(f"{name}: cannot be decoded (it is no {', '.join(FORMATS)})") from None
    except Exception as error:  # Pillow's decoders raise many types
        raise UserError(f"{name}: cannot be decoded ({one_line(error)})") from error


def to_rgb(image: Image.Image) -> Image.Image:
    """Three channels of 8 bits; integers are scaled from 16 bits, floats from [0, 1], floats in [0, 255] stay."""
    if image.mode == "F" or image.mode.startswith("I"):
        values = np.asarray(image)
        least, most = values.min(), values.max()
        limit = 255 if image.mode == "F" else 65_535
        if not (least >= 0 and most <= limit):
            raise ValueError(f"it holds values from {least:g} to {most:g}; save it with 8 bits a channel")
        scale = 1 / 257 if limit > 255 else 255 if most <= 1 else 1
        image = Image.fromarray((values * scale).astype(np.uint8))
    return image.convert("RGB")


class Images(ABC):
    """N images by their position."""

    side: int | None = None  # in pixels, of images in memory, if the first is a square
    holds_tensors = False  # whether they are float tensors that a model takes as they are
    kept: Mapping[Hashable, Callable[[int], Bytes]] = {}  # resizing -> bytes (H, W, 3) of a resized image, if kept

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def image(self, position: int) -> Image.Image | Tensor:
        """One image, RGB; a :class:`UserError` names the one that cannot be read, and why."""

    def read(self, position: int) -> Image.Image | Tensor:
        """One image as its source holds it."""
        return self.image(position)

    def content(self) -> bytes:
        """What tells them from others that have the same names: checksums of at most eight whose second reading is
        equal."""
        sampled = np.unique(np.linspace(0, len(self) - 1, 8).astype(int)).tolist()
        twice = ([hashlib.sha256(np.asarray(self.read(at)).tobytes()).digest() for _ in "12"] for at in sampled)
        return b"".join(first for first, second in twice if first == second)

    def names(self, positions: Positions) -> Iterator[bytes]:
        return (b"%d" % position for position in positions.tolist())

    def states(self, positions: Positions) -> Iterator[bytes]:
        """Keys of the images' content for a cache; an error if the content may change between readings."""
        yield self.content()
        yield from self.names(positions)


class Files(Images):
    """Image files below a common root. Their names are one array of bytes, which worker processes share."""

    def __init__(self, paths: Sequence[str], root: str):
        self.root, prefix = root, os.path.join(root, "")
        self.stored = np.array([os.fsencode(path.removeprefix(prefix)) for path in paths], dtype=bytes)

    def __len__(self) -> int:
        return len(self.stored)

    def path(self, position: int) -> str:
        return os.path.join(self.root, os.fsdecode(self.stored[position]))

    def image(self, position: int) -> Image.Image:
        return load_image(self.path(position))

    def content(self) -> bytes:
        """Nothing: the names of files are enough."""
        return b""

    def names(self, positions: Positions) -> Iterator[bytes]:
        root = os.fsencode(os.sep if self.root else "")
        return (os.path.join(root, name) for name in self.stored[positions].tolist())

    def states(self, positions: Positions) -> Iterator[bytes]:
        yield os.fsencode(os.path.realpath(self.root))
        for position in positions.tolist():
            status = os.stat(self.path(position))
            state = f"\0{status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
            yield self.stored[position] + state.encode()


class Items(Images):
    """Items of a map-style dataset: an image, or a tuple or dict that holds one. Float tensors stay unchanged."""

    def __init__(self, dataset: Any, name: str):
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            if hasattr(dataset, "dataset"):
                raise UserError(f"{name} gives batches, and each image is needed by its number; pass `loader.dataset`")
            raise UserError(
                f"{name}: {type(dataset).__name__} has no length or no items by number, and adaptation keeps votes of "
                "each image; give a map-style dataset"
            )
        if not len(dataset):
            raise UserError(f"{name}: the dataset is empty; give one with images")
        self.dataset, self.name = dataset, name
        first = self.read(0)
        self.shape = tuple(getattr(first, "shape", ()))  # of a tensor; images have none
        self.side = first.width if isinstance(first, Image.Image) and first.width == first.height else None
        self.holds_tensors = bool(self.shape)

    def __len__(self) -> int:
        return len(self.dataset)

    def image(self, position: int) -> Image.Image | Tensor:
        image = self.read(position)
        shape = tuple(getattr(image, "shape", ()))
        if shape != self.shape:
            raise UserError(
                f"{self.name}, item {position}: {shape or 'an image'} but expected {self.shape or 'an image'} as item 0"
            )
        return image if isinstance(image, Image.Image) else image.float()

    def states(self, positions: Positions) -> Iterator[bytes]:
        raise UserError(
            f"{self.name}: `cache` is for files and Hugging Face datasets; this dataset is in memory already"
        )

    def read(self, position: int) -> Image.Image | Tensor:
        where = f"{self.name}, item {position}"
        try:
            return _as_image(self.dataset[position], where)
        except UserError:
            raise
        except Exception as error:  # it is the user's code
            raise UserError(f"{where}: cannot be read ({type(error).__name__}: {one_line(error)})") from error


def _as_image(item: Any, where: str) -> Image.Image | Tensor:
    if isinstance(item, Mapping):
        item = [*(item[name] for name in IMAGE_NAMES if name in item), *item.values()]
    value: Any = next(iter(item), None) if isinstance(item, tuple | list) else item
    if isinstance(value, Image.Image):
        return to_rgb(value)
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind == "f":
        value = torch.from_numpy(value)
    if isinstance(value, Tensor) and value.is_floating_point() and value.ndim and value.numel():
        if not value.isfinite().all():
            raise UserError(f"{where}: it has NaN or infinity; remove it or fill it in")
        return value.detach().cpu()
    pixels = value
    if isinstance(value, Tensor) and value.ndim == 3 and value.numel():
        pixels = value.movedim(0, -1).cpu().numpy()
    if isinstance(pixels, np.ndarray) and pixels.size:
        pixels = pixels[..., 0] if pixels.shape[2:] == (1,) else pixels
        if pixels.dtype.kind == "f" and pixels.min() >= 0 and pixels.max() <= 1:
            pixels = np.rint(pixels * 255).astype(np.uint8)
        if pixels.dtype == np.uint8 and (pixels.ndim == 2 or pixels.shape[2:] == (3,)):
            return Image.fromarray(pixels).convert("RGB")
    described = f"{type(value).__name__} {tuple(value.shape)} {value.dtype}" if hasattr(value, "shape") else repr(value)
    raise UserError(
        f"{where}: {described[:80]} is no image; expected a PIL image, an (H, W, 3) array of bytes or of numbers from "
        "0 to 1, a (C, H, W) tensor, a float tensor, or a tuple or dict that holds one"
    )
