"""Where images come from: files, the items of a dataset, the rows of an array of floats."""

from __future__ import annotations

import hashlib
import inspect
import os
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property, partial
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import IterableDataset, Subset, TensorDataset

from tllib_ancon.data.image_files import decoded, described, image_of, kind_of
from tllib_ancon.runtime.errors import BadImages, BadSetting, UserError, named, one_line, reading
from tllib_ancon.runtime.text import first_few

Positions = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Array = np.ndarray[Any, Any] | Tensor

Loader = Callable[[str], Any]
"""Path of a file -> PIL image or uint8 tensor (1 or 3, H, W), or a float tensor that the model gets unchanged."""

TRIED = 64
"""Images at most that a loader reads until one shows what it returns."""

CHECKED = 2**27
"""Largest array, in bytes, that is checked before anything is written. A larger one is checked while it is read."""

MOST_NAMED = 5
"""Bad rows that an error names."""


def spread(count: int, most: int) -> Positions:
    """At most this many of ``count`` positions, spread evenly, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, most).astype(np.int64))


def load_image(path: str) -> Image.Image:
    """Decode one file."""
    with open_file(path) as (file, name):
        return decoded(file, name)


@contextmanager
def open_file(path: str) -> Iterator[tuple[BinaryIO, str]]:
    """The file and its name in messages."""
    name = f"image {path}"
    with reading(name, "an image"), open(path, "rb") as file:
        yield file, name


class Reader(ABC):
    """N images by their position.

    Attributes:
        side: in pixels, of images in memory, if the first is a square
        is_raw: whether they are float tensors, which a model gets unchanged
        is_in_memory: whether nothing is decoded
        root: folder of their files; empty without one
        loader: name of the user's function that reads their files; empty for Pillow
        cached: resizing -> bytes (H, W, 3) of a resized image, if cached
    """

    side: int | None = None
    is_raw: bool = False
    is_in_memory: bool = False
    root: str = ""
    loader: str = ""
    cached: Mapping[Hashable, Callable[[int], Bytes]] = {}

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, position: int) -> Image.Image | Tensor:
        """One image, RGB or a float tensor; a :class:`UserError` names the one that cannot be read, and why."""

    def path(self, position: int) -> str | None:
        """The file of an image; None where it comes from none."""
        return None

    def batch(self, positions: Positions) -> Tensor | None:
        """The images at these positions as one batch, where they are rows of one array; else None."""
        return None

    def read_by(self, loader: Loader) -> Reader:
        """The same images, whose files this function reads."""
        raise BadSetting(f"{named('loader')} reads files, and these images are none", "leave it out", setting="loader")

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


class Encoded(Reader):
    """Images in files or in bytes, which :func:`~tllib_ancon.data.image_files.decoded` decodes."""

    @abstractmethod
    def opened(self, position: int) -> AbstractContextManager[tuple[BinaryIO, str]]:
        """The bytes of one image, and its name in messages."""

    def read(self, position: int) -> Image.Image | Tensor:
        with self.opened(position) as (file, name):
            return decoded(file, name)


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

    def read_by(self, loader: Loader) -> Reader:
        return _Loaded(self, loader)

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


class _Loaded(Files):
    """Files that a function of the user reads. All images are of one kind: RGB, or float tensors of one shape."""

    def __init__(self, files: Files, function: Loader):
        self.root = files.root
        self.stored = files.stored
        self.function = function
        self.loader = name_of(function)

    def read(self, position: int) -> Image.Image | Tensor:
        image = self._read(position)
        return _of_one_shape(image, self.shape, f"image {self.path(position)}, by {named('loader')} {self.loader}")

    def _read(self, position: int) -> Image.Image | Tensor:
        path = self.path(position)
        where = f"{named('loader')} {self.loader} gets {path}"
        try:
            value = self.function(path)
        except Exception as error:  # it is the user's code
            raise BadImages(
                f"{where} and raises {type(error).__name__} ({one_line(error)})", "repair it", setting="loader"
            ) from error
        try:
            return image_of(value, where)
        except UserError as error:
            raise BadImages(f"{where} and returns {described(value)}", error.action, setting="loader") from error

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of its float tensors, by the first image that can be read; empty for RGB."""
        for position in spread(len(self), TRIED).tolist():
            with suppress(UserError):
                return shape_of(self._read(position))
        return shape_of(self._read(0))

    @property
    def is_raw(self) -> bool:  # type: ignore[override]
        return bool(self.shape)

    def cache_keys(self, positions: Positions) -> Iterator[bytes]:
        yield _content_of(self.function)
        yield from super().cache_keys(positions)


class Items(Reader):
    """Items of a map-style dataset: an image, or a tuple with one first. Float tensors stay unchanged."""

    is_in_memory = True

    def __init__(self, dataset: Any, name: str):
        has_items = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        if not has_items or isinstance(dataset, IterableDataset) or not len(dataset):
            raise BadImages(
                f"{name} has no items by number, and adaptation keeps votes of each image",
                "pass a list, an array or a map-style dataset that is not empty, such as the dataset of a data loader",
            )
        self.dataset = dataset
        self.name = name
        first = self._read(0)
        self.shape = shape_of(first)
        self.is_raw = bool(self.shape)
        if isinstance(first, Image.Image) and first.width == first.height:
            self.side = first.width

    def __len__(self) -> int:
        return len(self.dataset)

    def read(self, position: int) -> Image.Image | Tensor:
        return _of_one_shape(self._read(position), self.shape, self._where(position))

    def cache_keys(self, positions: Positions) -> Iterator[bytes]:
        raise BadImages(
            f"{self.name}: {named('cache')} is for files and Hugging Face datasets; this dataset is in memory already",
            "leave it out",
        )

    def _read(self, position: int) -> Image.Image | Tensor:
        where = self._where(position)
        try:
            item = self.dataset[position]
        except UserError:
            raise
        except Exception as error:  # it is the user's code
            raise BadImages(
                f"{where}: cannot be read ({type(error).__name__}: {one_line(error)})", "repair or remove it"
            ) from error
        if isinstance(item, tuple | list) and len(item):
            return image_of(item[0], where)
        return image_of(item, where)

    def _where(self, position: int) -> str:
        return f"{self.name}, item {position}"


class Rows(Reader):
    """The rows of an array or tensor (N, ...) of floats; those of a small one are checked at once."""

    is_raw = True

    def __init__(self, rows: Array, name: str):
        self.rows = rows
        self.name = name
        if rows.nbytes <= CHECKED:
            self.batch(np.arange(len(rows)))

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, position: int) -> Tensor:
        return self.batch(np.array([position]))[0]

    def batch(self, positions: Positions) -> Tensor:
        if isinstance(self.rows, Tensor):
            chosen = self.rows[torch.from_numpy(positions)].float()
        else:
            chosen = torch.from_numpy(np.array(self.rows[positions], dtype=np.float32))
        is_finite = chosen.reshape(len(chosen), -1).isfinite().all(1).numpy()
        if not is_finite.all():
            bad_rows = positions[~is_finite].tolist()
            shown = first_few([str(row) for row in bad_rows], MOST_NAMED)
            raise BadImages(
                f"{self.name}: NaN or infinity in {len(bad_rows)} rows ({shown})", "remove them or fill them in"
            )
        return chosen


def images_in_memory(data: Any, name: str) -> Reader:
    """The images of an array, a tensor or a map-style dataset."""
    on_host = on_cpu(data)
    if not isinstance(on_host, np.ndarray | Tensor):
        return Items(on_host, name)
    where = getattr(on_host, "filename", None) or name
    kind = kind_of(on_host)
    shape = tuple(on_host.shape)
    if "float" in kind and shape and len(on_host):
        return Rows(on_host, where)
    channels = 0 if isinstance(on_host, Tensor) else 2
    is_one_image = len(shape) == 3 and shape[channels] == 3
    if kind != "uint8" or len(shape) not in (3, 4) or is_one_image:
        raise BadImages(
            f"{where}: an array {shape} of {kind}",
            "pass images as uint8 (N, H, W) or (N, H, W, 3), in a tensor (N, 1 or 3, H, W), or in a list such as "
            "[image]; the model gets arrays of float32 (N, ...) unchanged",
        )
    return Items(on_host, name)


def on_cpu(data: Any) -> Any:
    """The same data with tensors on the CPU: worker processes cannot read from a GPU."""
    if isinstance(data, Tensor):
        return data.detach().cpu().to_dense()
    if isinstance(data, TensorDataset):
        return TensorDataset(*map(on_cpu, data.tensors))
    if isinstance(data, Subset):
        return Subset(on_cpu(data.dataset), data.indices)
    if type(data) is list:
        return list(map(on_cpu, data))
    return data


def shape_of(image: Image.Image | Tensor) -> tuple[int, ...]:
    """The shape of a float tensor; empty for an image."""
    if isinstance(image, Tensor):
        return tuple(image.shape)
    return ()


def name_of(loader: Loader) -> str:
    """The qualified name of a loader, for records and messages."""
    function = _function_in(loader)
    owner = function if hasattr(function, "__qualname__") else type(function)
    return f"{owner.__module__}:{owner.__qualname__}"


def _function_in(loader: Any) -> Any:
    """The function in a partial one."""
    while isinstance(loader, partial):
        loader = loader.func
    return loader


def _content_of(loader: Loader) -> bytes:
    """What decides the images that a loader makes: it with its arguments, and the source of its module."""
    function = _function_in(loader)
    source = ""
    with suppress(OSError, TypeError):  # of a function without a file
        source = inspect.getsource(inspect.getmodule(function) or inspect.getmodule(type(function)))  # type: ignore[arg-type]
    try:
        return pickle.dumps(loader) + source.encode()
    except Exception as error:  # pickle raises many types
        raise BadSetting(
            f"{named('cache')} needs to know {named('loader')} again, and {name_of(loader)} cannot be pickled",
            "define it at the top level of a module",
            setting="loader",
        ) from error


def _of_one_shape(image: Image.Image | Tensor, expected: tuple[int, ...], where: str) -> Image.Image | Tensor:
    shape = shape_of(image)
    if shape != expected:
        raise BadImages(
            f"{where}: {shape or 'an image'} but expected {expected or 'an image'} as in the first",
            "return images of one kind",
        )
    return image
