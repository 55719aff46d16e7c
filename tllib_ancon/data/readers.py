"""What reads images by their position: from files, or the items of a dataset or an array."""

from __future__ import annotations

import hashlib
import inspect
import os
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import IterableDataset, TensorDataset

from tllib_ancon.data.image_files import as_floats, image_of, kind_of, load_image
from tllib_ancon.runtime.errors import BadImages, BadSetting, UserError, named, one_line

Positions = NDArray[np.int64]
Bytes = NDArray[np.uint8]

Loader = Callable[[str], Any]
"""Path of a file -> PIL image or uint8 tensor (1 or 3, H, W), or a float tensor that the model gets unchanged."""

_TRIED = 64
"""Images at most that the user's code reads until one shows what it returns."""

_CHECKED = 2**27
"""Largest array, in bytes, that is checked before anything is written. A larger one is checked while it is read."""


class Reader(ABC):
    """Reads N images by their position.

    Attributes:
        side: in pixels, of images in memory, if the first is a square
        is_raw: whether they are float tensors, which a model gets unchanged
        is_in_memory: whether nothing is decoded
        root: folder of their files; empty without one
        loader: name of the user's function that reads their files; empty for Pillow
    """

    side: int | None = None
    is_raw: bool = False
    is_in_memory: bool = False
    root: str = ""
    loader: str = ""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, position: int) -> Image.Image | Tensor:
        """One image, RGB or a float tensor; a :class:`UserError` names the one that cannot be read, and why."""

    def paths(self, positions: Positions) -> list[str] | None:
        """The files of these images; None where they come from none."""
        return None

    def batch(self, positions: Positions) -> Tensor | None:
        """The images at these positions as one batch, where they are rows of one array; else None."""
        return None

    def read_by(self, loader: Loader) -> Reader:
        """The same images, whose files this function reads."""
        raise BadSetting(f"{named('loader')} reads files, and these images are none", "leave it out", setting="loader")

    def identity(self) -> bytes:
        """What tells them from others that have the same keys: the content of at most eight."""
        digest = hashlib.sha256()
        for position in _spread(len(self), 8):
            digest.update(np.asarray(self.read(position)).tobytes())
        return digest.digest()

    def keys(self, positions: Positions) -> Iterator[bytes]:
        """The path of each file; else the number of each image."""
        return (b"%d" % position for position in positions.tolist())

    def cache_keys(self, positions: Positions) -> Iterator[bytes]:
        """Keys of the images' content for a cache."""
        yield self.identity()
        yield from self.keys(positions)


class _OfUser(Reader):
    """Images that code of the user makes. All are RGB, or all are float tensors."""

    setting = ""

    @abstractmethod
    def made(self, position: int) -> Any:
        """What the user's code returns."""

    @abstractmethod
    def described(self, position: int) -> str:
        """The call of the user's code in a message."""

    def read(self, position: int) -> Image.Image | Tensor:
        image = self._read(position)
        if isinstance(image, Tensor) != self.is_raw:
            raise BadImages(
                f"{self.described(position)} returns {type(image).__name__}, and before another kind",
                "return images, or float tensors, alone",
                self.setting,
            )
        return image

    def _read(self, position: int) -> Image.Image | Tensor:
        try:
            value = self.made(position)
        except Exception as error:  # it is the user's code
            raise BadImages(
                f"{self.described(position)} raises {type(error).__name__} ({one_line(error)})",
                "repair it",
                self.setting,
            ) from error
        return image_of(value, self.described(position), self.setting)

    @cached_property
    def is_raw(self) -> bool:  # type: ignore[override]
        """By the first image that can be read."""
        for position in _spread(len(self), _TRIED):
            with suppress(UserError):
                return isinstance(self._read(position), Tensor)
        return isinstance(self._read(0), Tensor)


class Files(Reader):
    """Image files below a common root. Their names are one array of bytes, which worker processes share."""

    def __init__(self, paths: Sequence[str], root: str):
        self.root = root
        prefix = os.path.join(root, "")
        self.stored = np.array([os.fsencode(path.removeprefix(prefix)) for path in paths], dtype=bytes)

    def __len__(self) -> int:
        return len(self.stored)

    def path(self, position: int) -> str:
        return os.path.join(self.root, os.fsdecode(self.stored[position]))

    def paths(self, positions: Positions) -> list[str] | None:
        return [self.path(position) for position in positions.tolist()]

    def read(self, position: int) -> Image.Image | Tensor:
        return load_image(self.path(position))

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


class _Loaded(_OfUser, Files):
    """Files that a function of the user reads."""

    setting = "loader"

    def __init__(self, files: Files, function: Loader):
        self.root = files.root
        self.stored = files.stored
        self.function = function
        owner = _owner_of(function)
        self.loader = f"{owner.__module__}:{owner.__qualname__}"

    def made(self, position: int) -> Any:
        return self.function(self.path(position))

    def described(self, position: int) -> str:
        return f"{named('loader')} {self.loader}({self.path(position)})"

    def cache_keys(self, positions: Positions) -> Iterator[bytes]:
        yield _content_of(self.function)
        yield from super().cache_keys(positions)


class _Items(_OfUser):
    """Rows of an array, or items of a map-style dataset: an image, or a tuple with one first."""

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
        self.are_rows = "float" in kind_of(dataset)
        first = self._read(0)
        if isinstance(first, Image.Image) and first.width == first.height:
            self.side = first.width
        if self.are_rows and dataset.nbytes <= _CHECKED:
            self.batch(np.arange(len(dataset)))

    def __len__(self) -> int:
        return len(self.dataset)

    def made(self, position: int) -> Any:
        item = self.dataset[position]
        if isinstance(item, tuple | list) and len(item):
            return item[0]
        return item

    def described(self, position: int) -> str:
        return f"{self.name}[{position}]"

    def batch(self, positions: Positions) -> Tensor | None:
        if not self.are_rows:
            return None
        rows = as_floats(self.dataset[positions])
        if not rows.isfinite().all():
            for position in positions.tolist():
                self._read(position)  # which names it
        return rows


def reader_of(data: Any, name: str) -> Reader:
    """The reader of an array, a tensor or a map-style dataset."""
    on_host = on_cpu(data)
    kind = kind_of(on_host)
    shape = tuple(getattr(on_host, "shape", ()))
    is_one_image = kind == "uint8" and len(shape) == 3 and shape[0 if isinstance(on_host, Tensor) else 2] == 3
    if kind and (not shape or is_one_image):
        raise BadImages(
            f"{name}: an array {shape} of {kind}",
            "pass images as uint8 (N, H, W) or (N, H, W, 3), in a tensor (N, 1 or 3, H, W), or in a list such as "
            "[image]; the model gets arrays of float32 (N, ...) unchanged",
        )
    return _Items(on_host, name)


def on_cpu(data: Any) -> Any:
    """The same data with tensors on the CPU: worker processes cannot read from a GPU."""
    if isinstance(data, Tensor):
        return data.detach().cpu().to_dense()
    if isinstance(data, TensorDataset):
        return TensorDataset(*map(on_cpu, data.tensors))
    return data


def _spread(count: int, most: int) -> list[int]:
    """At most this many of ``count`` positions, spread evenly, the first and the last among them."""
    positions: list[int] = np.unique(np.linspace(0, count - 1, most).astype(np.int64)).tolist()
    return positions


def _owner_of(loader: Any) -> Any:
    """The function or class whose code reads files: of a partial function the whole one."""
    function = getattr(loader, "func", loader)
    return function if hasattr(function, "__qualname__") else type(function)


def _content_of(loader: Loader) -> bytes:
    """What decides the images that a loader makes: it with its arguments, and the source of its module."""
    source = ""
    with suppress(OSError, TypeError):  # of a function without a file
        source = inspect.getsource(inspect.getmodule(_owner_of(loader)))  # type: ignore[arg-type]
    try:
        return pickle.dumps(loader) + source.encode()
    except Exception as error:  # pickle raises many types
        raise BadSetting(
            f"{named('cache')} needs to know {named('loader')} again, and it cannot be pickled",
            "define it at the top level of a module",
            setting="loader",
        ) from error
