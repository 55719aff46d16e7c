"""Where images come from, decoded to RGB: files, the items of a dataset, a column of Hugging Face."""

from __future__ import annotations

import hashlib
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torch.utils.data import IterableDataset

from tllib_ancon.data.batches import Batch
from tllib_ancon.data.image_files import FORMATS, read_samples, samples_of
from tllib_ancon.data.pixels import MOST_SAMPLED, Decoding, PixelRange, PixelValues, Samples
from tllib_ancon.runtime.errors import BadImages, UserError, named, one_line, reading

Positions = NDArray[np.int64]
Bytes = NDArray[np.uint8]

IMAGE_NAMES = ("images", "image", "imgs", "img", "pixel_values", "data", "x", "arr_0")
"""Usual keys of images, in a dataset's item or a mapping of arrays. Of an item the first that is there is taken."""

CHANNELS = (1, 3)
"""Numbers of channels of an array that is an image."""

DEEP_KINDS = ("uint16", "int16", "int32", "uint32")
"""Types of arrays that hold images of more than 8 bits."""


def spread(count: int, most: int) -> Positions:
    """At most this many of ``count`` positions, spread evenly, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, most).astype(np.int64))


def kind_of(array: Any) -> str:
    """The type of the numbers in an array or tensor by NumPy's name; empty for everything else."""
    return str(getattr(array, "dtype", "")).removeprefix("torch.")


def jpeg(image: Image.Image) -> bytes:
    """JPEG for people: rotated by its EXIF entry, no side above 1,600 pixels, without metadata."""
    upright = image
    with suppress(Exception):  # Pillow's reader of EXIF raises many types; then it lies as models see it
        upright = ImageOps.exif_transpose(image)
    shown = upright.convert("RGB")
    shown.thumbnail((1600, 1600))
    shown.info.clear()
    content = io.BytesIO()
    shown.save(content, "JPEG", quality=95, subsampling=0)
    return content.getvalue()


def load_image(path: str) -> Image.Image:
    """Decode one file. The range of deep pixels is decided by this file alone."""
    return Files([path], "").image(0)


@contextmanager
def open_file(path: str) -> Iterator[tuple[BinaryIO, str]]:
    """The file and its name in messages."""
    name = f"image {path}"
    with reading(name, "an image"), open(path, "rb") as file:
        yield file, name


@contextmanager
def _naming(image: str) -> Iterator[None]:
    """Turn any error of a decoder into one line that names the image."""
    try:
        yield
    except UnidentifiedImageError:
        raise BadImages(f"{image}: cannot be decoded (it is no {', '.join(FORMATS)})", "remove or convert it") from None
    except Exception as error:  # Pillow's decoders raise many types
        if isinstance(error, UserError):
            reason = str(error)
        else:
            reason = one_line(error)
        raise BadImages(f"{image}: cannot be decoded ({reason})", "remove or repair it") from error


class Images(ABC):
    """N images by their position."""

    side: int | None = None  # in pixels, of images in memory, if the first is a square
    holds_tensors = False  # whether they are float tensors that a model takes as they are
    cached: Mapping[Hashable, Callable[[int], Bytes]] = {}  # resizing -> bytes (H, W, 3) of a resized image, if cached
    decoding = Decoding()  # how files become bytes

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def image(self, position: int) -> Image.Image | Batch:
        """One image, RGB; a :class:`UserError` names the one that cannot be read, and why."""

    def read(self, position: int) -> Image.Image | Batch:
        """One image as its source holds it."""
        return self.image(position)

    def samples(self, position: int) -> Samples | None:
        """The samples of one image before they are bytes; None where the source holds no files."""
        return None

    def pixel_values(self, positions: Positions | None = None) -> PixelValues:
        """What at most 64 images spread over these positions hold; unreadable ones are left out. An image in memory has
        8 bits unless its :meth:`samples` say otherwise."""
        if positions is None:
            among = np.arange(len(self))
        else:
            among = positions
        return PixelValues.of(self._readable(among[spread(len(among), MOST_SAMPLED)]))

    def _readable(self, positions: Positions) -> Iterator[Samples]:
        for position in positions.tolist():
            with suppress(UserError):
                yield self.samples(position) or Samples()

    @cached_property
    def decided_range(self) -> PixelRange | None:
        """The range of values of this data set: the setting, else by its images."""
        return self.decoding.pixel_range or self.pixel_values().pixel_range

    def decoded_by(self, decoding: Decoding) -> Images:
        """The same images, decoded in this way."""
        if decoding == self.decoding:
            return self
        images = copy(self)
        images.decoding = decoding
        for decoded in ("decided_range", "cached"):
            vars(images).pop(decoded, None)
        return images

    def to_rgb(self, samples: Samples) -> Image.Image:
        if samples.values is None:
            return samples.to_rgb(None)
        return samples.to_rgb(self.decided_range)

    def identity(self) -> bytes:
        """What tells them from others that have the same keys: checksums of at most eight whose second reading is
        equal."""
        checksums = []
        for position in spread(len(self), 8).tolist():
            checksum = self._checksum(position)
            if checksum == self._checksum(position):
                checksums.append(checksum)
        return b"".join(checksums)

    def _checksum(self, position: int) -> bytes:
        return hashlib.sha256(np.asarray(self.read(position)).tobytes()).digest()

    def keys(self, positions: Positions) -> Iterator[bytes]:
        """The path of each file; else the number of each image."""
        return (b"%d" % position for position in positions.tolist())

    def cache_keys(self, positions: Positions) -> Iterator[bytes]:
        """Keys of the images' content for a cache; an error if the content may change between readings."""
        yield self.identity()
        yield from self.keys(positions)


class Encoded(Images):
    """Images in files or in bytes, which :func:`~tllib_ancon.data.image_files.read_samples` decodes."""

    @abstractmethod
    def opened(self, position: int) -> AbstractContextManager[tuple[BinaryIO, str]]:
        """The bytes of one image, and its name in messages."""

    def image(self, position: int) -> Image.Image:
        with self.opened(position) as (file, name), _naming(name):
            return self.to_rgb(read_samples(file, self.decoding))

    def samples(self, position: int) -> Samples:
        with self.opened(position) as (file, name), _naming(name):
            samples = read_samples(file, self.decoding)
            return replace(samples, hides_colours=samples.has_transparent_pixels())


class Files(Encoded):
    """Image files below a common root. Their names are one array of bytes, which worker processes share."""

    def __init__(self, paths: Sequence[str], root: str):
        self.root = root
        prefix = os.path.join(root, "")
        self.stored = np.array([os.fsencode(path.removeprefix(prefix)) for path in paths], dtype=bytes)

    def __len__(self) -> int:
        return len(self.stored)

    def path(self, position: int) -> str:
        return os.path.join(self.root, os.fsdecode(self.stored[position]))

    def opened(self, position: int) -> AbstractContextManager[tuple[BinaryIO, str]]:
        return open_file(self.path(position))

    def identity(self) -> bytes:
        """Nothing: the names of files are enough."""
        return b""

    def keys(self, positions: Positions) -> Iterator[bytes]:
        root = os.fsencode(os.sep if self.root else "")
        return (os.path.join(root, name) for name in self.stored[positions].tolist())

    def cache_keys(self, positions: Positions) -> Iterator[bytes]:
        yield os.fsencode(os.path.realpath(self.root))
        for position in positions.tolist():
            status = os.stat(self.path(position))
            state = f"\0{status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
            yield self.stored[position] + state.encode()


class Items(Images):
    """Items of a map-style dataset: an image, or a tuple or dict that holds one. Float tensors stay unchanged."""

    def __init__(self, dataset: Any, name: str):
        has_items = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        if not has_items or isinstance(dataset, IterableDataset):
            if hasattr(dataset, "dataset"):
                raise BadImages(
                    f"{name} gives batches, and each image is needed by its number", f"pass {_dataset_of(dataset)}"
                )
            raise BadImages(
                f"{name}: {type(dataset).__name__} has no length or no items by number, and adaptation keeps votes of "
                "each image",
                "give a list, an array or a map-style dataset",
            )
        if not len(dataset):
            raise BadImages(f"{name}: the dataset is empty", "give one with images")
        self.dataset = dataset
        self.name = name
        self.is_deep = self._deep(0) is not None
        first = self.read(0)
        self.shape = tuple(getattr(first, "shape", ()))  # of a tensor; images have none
        if isinstance(first, Image.Image) and first.width == first.height:
            self.side = first.width
        self.holds_tensors = bool(self.shape)

    def __len__(self) -> int:
        return len(self.dataset)

    def image(self, position: int) -> Image.Image | Tensor:
        image = self.read(position)
        shape = tuple(getattr(image, "shape", ()))
        if shape != self.shape:
            raise BadImages(
                f"{self.name}, item {position}: {shape or 'an image'} but expected {self.shape or 'an image'} as item 0"
            )
        if isinstance(image, Image.Image):
            return image
        return image.float()

    def cache_keys(self, positions: Positions) -> Iterator[bytes]:
        raise BadImages(
            f"{self.name}: {named('cache')} is for files and Hugging Face datasets; this dataset is in memory already",
            "leave it out",
        )

    def read(self, position: int) -> Image.Image | Tensor:
        where = f"{self.name}, item {position}"
        value = _image_in(self._item(position))
        samples = _samples_in(value)
        if samples is not None:
            with _naming(where):
                return self.to_rgb(samples)
        features = _as_features(value, where)
        if features is not None:
            return features
        image = _image_of_array(value)
        if image is not None:
            return image
        described = one_line(repr(value))
        if hasattr(value, "shape"):
            described = f"{type(value).__name__} {tuple(value.shape)} {value.dtype}"
        raise BadImages(
            f"{where}: {described[:80]} is no image",
            "expected a PIL image, an array (H, W, 3) or (3, H, W) of bytes or "
            "of numbers from 0 to 1, a float tensor, or a tuple or dict with one first",
        )

    def samples(self, position: int) -> Samples | None:
        if not self.is_deep:
            return None
        return self._deep(position)

    def _deep(self, position: int) -> Samples | None:
        """The samples of an item with more than 8 bits; None for every other item."""
        value = _image_in(self._item(position))
        samples = _samples_in(value)
        if samples is None or samples.values is None:
            return None
        return samples

    def _item(self, position: int) -> Any:
        try:
            return self.dataset[position]
        except UserError:
            raise
        except Exception as error:  # it is the user's code
            where = f"{self.name}, item {position}"
            raise BadImages(
                f"{where}: cannot be read ({type(error).__name__}: {one_line(error)})", "repair or remove it"
            ) from error


def _dataset_of(loader: Any) -> str:
    """What to pass in place of a loader of batches: its dataset, or the part of it that its sampler visits."""
    with suppress(TypeError, AttributeError):  # of a loader without a sampler, or of one without a length
        if len(loader.sampler) < len(loader.dataset):
            return "torch.utils.data.Subset(loader.dataset, [*loader.sampler])"
    return f"{named('loader.dataset')}"


def _image_in(item: Any) -> Any:
    """What an item of a dataset holds as its image: under a usual name, or first; None in an empty item."""
    if isinstance(item, Mapping):
        for name in IMAGE_NAMES:
            if name in item:
                return item[name]
        return next(iter(item.values()), None)
    if isinstance(item, tuple | list):
        return next(iter(item), None)
    return item


def _samples_in(value: Any) -> Samples | None:
    """The samples of a PIL image, or of an array of more than 8 bits."""
    if isinstance(value, Image.Image):
        return samples_of(value)
    if kind_of(value) not in DEEP_KINDS:
        return None
    pixels = _channels_last(value)
    if not _is_picture(pixels):
        return None
    return Samples(values=pixels)


def _channels_last(value: NDArray[Any] | Tensor) -> NDArray[Any]:
    """An array (H, W, C) or (C, H, W) of one or three channels as (H, W, C); one channel becomes (H, W)."""
    if isinstance(value, Tensor):
        pixels = value.cpu().numpy()
    else:
        pixels = np.asarray(value)
    if pixels.ndim == 3 and _channels_are_first(pixels.shape, usually=isinstance(value, Tensor)):
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.shape[2:] == (1,):
        return pixels[..., 0]
    return pixels


def _channels_are_first(shape: tuple[int, ...], usually: bool) -> bool:
    """Whether the first of three dimensions are the channels; ``usually`` decides where the last could be, too."""
    if shape[0] in CHANNELS and shape[2] in CHANNELS:
        return usually
    return shape[0] in CHANNELS


def _is_picture(pixels: NDArray[Any]) -> bool:
    """Whether an array is (H, W) or (H, W, 3)."""
    return bool(pixels.size) and (pixels.ndim == 2 or pixels.shape[2:] == (3,))


def _as_features(value: Any, where: str) -> Tensor | None:
    """A float tensor, or a vector of floats, which a model takes unchanged; None for everything else."""
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind == "f":
        return _as_features(torch.from_numpy(value), where)
    if not (isinstance(value, Tensor) and value.is_floating_point() and value.ndim and value.numel()):
        return None
    if not value.isfinite().all():
        raise BadImages(f"{where}: it has NaN or infinity", "remove it or fill it in")
    return value.detach().cpu()


def _image_of_array(value: Any) -> Image.Image | None:
    """The image of an array of bytes, or of numbers from 0 to 1; None for everything else."""
    if not isinstance(value, np.ndarray | Tensor):
        return None
    pixels = _channels_last(value)
    if not _is_picture(pixels):
        return None
    if pixels.dtype == np.uint8:
        return Image.fromarray(pixels).convert("RGB")
    if pixels.dtype.kind == "f" and pixels.min() >= 0 and pixels.max() <= 1:
        return Image.fromarray(np.rint(pixels * 255).astype(np.uint8)).convert("RGB")
    return None
