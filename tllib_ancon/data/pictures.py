"""Where the pictures of a domain come from: files, or the items of a dataset."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tllib_ancon.data.decoding import load_image, to_rgb
from tllib_ancon.data.paths import Paths
from tllib_ancon.errors import UserError, one_line

if TYPE_CHECKING:
    from torch import Tensor

Positions = NDArray[np.int64]
IMAGE_NAMES = ("image", "img")
"""Keys of a dataset's items that hold an image; the first that is there is taken."""

SAMPLED = 8
"""Items of a dataset in memory whose content tells it from another."""


class Pictures(Protocol):
    """N pictures by their position."""

    @property
    def paths(self) -> Paths | None:
        """Of their files, where each has one."""
        ...

    @property
    def holds_tensors(self) -> bool:
        """Whether they are float tensors that a model takes as they are."""
        ...

    def __len__(self) -> int: ...

    def image(self, position: int) -> Image.Image | Tensor:
        """One picture, RGB.

        Raises:
            UserError: it cannot be read (which, why)
        """
        ...

    def content(self) -> bytes:
        """What tells them from others that have the same names; nothing for files, whose names are enough."""
        ...

    def identities(self, positions: Positions) -> Iterator[bytes]:
        """The name of each of these pictures, the same wherever their root lies."""
        ...

    def states(self, positions: Positions) -> Iterator[bytes]:
        """What decides the content of these pictures, for a cache.

        Raises:
            UserError: a file that is missing; pictures that may change from one reading to the next
        """
        ...


class FilePictures:
    """Pictures in files.

    Args:
        paths: of the files. Default root: none
    """

    holds_tensors = False

    def __init__(self, paths: Sequence[str]):
        self.paths = paths if isinstance(paths, Paths) else Paths(paths)

    def __len__(self) -> int:
        return len(self.paths)

    def image(self, position: int) -> Image.Image:
        return load_image(self.paths[position])

    def content(self) -> bytes:
        return b""

    def identities(self, positions: Positions) -> Iterator[bytes]:
        prefix = os.sep if self.paths.root else ""
        for position in positions.tolist():
            relative = self.paths.relative(position)
            yield os.fsencode(relative if os.path.isabs(relative) else prefix + relative)

    def states(self, positions: Positions) -> Iterator[bytes]:
        yield os.fsencode(os.path.realpath(self.paths.root))
        for position in positions.tolist():
            path = self.paths[position]
            try:
                status = os.stat(path)
            except OSError as error:
                raise UserError(f"image {path}: file not found") from error
            state = f"\0{status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
            yield os.fsencode(self.paths.relative(position) + state)


class DatasetPictures:
    """Items of a map-style dataset: an image, or a tuple or dict that holds one.

    Pictures are PIL images, (H, W) or (H, W, 3) uint8 arrays and (C, H, W) uint8 tensors. (C, H, W) float tensors are
    taken as what a model is given: they are neither resized nor normalised.

    Args:
        dataset: with ``__len__`` and ``__getitem__``
        name: of it, for errors

    Raises:
        UserError: a dataset without a length, an empty one, or one whose first item holds no image
    """

    paths = None

    def __init__(self, dataset: Any, name: str):
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise UserError(
                f"{name}: {type(dataset).__name__} has no length or no items by number, and adaptation keeps votes of "
                "each image; give a map-style dataset"
            )
        if not len(dataset):
            raise UserError(f"{name}: the dataset is empty")
        self.dataset = dataset
        self.name = name
        self.shape = _tensor_shape(self._read(0))
        self.holds_tensors = self.shape is not None

    def __len__(self) -> int:
        return len(self.dataset)

    def image(self, position: int) -> Image.Image | Tensor:
        found = self._read(position)
        shape = _tensor_shape(found)
        if shape != self.shape:
            raise UserError(
                f"{self.name}, item {position}: {shape or 'a picture'} instead of {self.shape or 'a picture'} as item 0"
            )
        return found if isinstance(found, Image.Image) else found.float()

    def content(self) -> bytes:
        """Of a few items, where a second reading gives the same."""
        sampled = np.unique(np.linspace(0, len(self) - 1, SAMPLED).astype(int)).tolist()
        twice = ((_digest(self._read(position)), _digest(self._read(position))) for position in sampled)
        return b"".join(first for first, second in twice if first == second)

    def identities(self, positions: Positions) -> Iterator[bytes]:
        return (str(position).encode() for position in positions.tolist())

    def states(self, positions: Positions) -> Iterator[bytes]:
        raise UserError(
            f"{self.name}: `cache` is for files and Hugging Face datasets; this dataset is in memory already"
        )

    def _read(self, position: int) -> Image.Image | Tensor:
        where = f"{self.name}, item {position}"
        try:
            return _as_picture(_image_of(self.dataset[position]), where)
        except UserError:
            raise
        except Exception as error:  # it is the user's code
            raise UserError(f"{where}: cannot be read ({type(error).__name__}: {one_line(error)})") from error


def _image_of(item: Any) -> Any:
    if isinstance(item, Mapping):
        named = [item[name] for name in IMAGE_NAMES if name in item]
        return (named or list(item.values()) or [None])[0]
    if isinstance(item, tuple | list):
        return item[0] if item else None
    return item


def _as_picture(found: Any, where: str) -> Image.Image | Tensor:
    """A PIL image in RGB, or a float tensor (C, H, W)."""
    import torch

    if isinstance(found, Image.Image):
        return to_rgb(found)
    if isinstance(found, np.ndarray) and found.dtype == np.uint8 and _is_picture(found.shape, channels=-1):
        return Image.fromarray(found[..., 0] if found.shape[-1] == 1 else found).convert("RGB")
    if isinstance(found, torch.Tensor) and found.ndim == 3 and found.numel():
        if found.is_floating_point():
            return found.detach().cpu()
        if found.dtype == torch.uint8 and _is_picture(found.shape, channels=0):
            pixels = found.cpu().numpy()
            return Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)).convert("RGB")
    described = f"{type(found).__name__} {tuple(found.shape)} {found.dtype}" if hasattr(found, "shape") else repr(found)
    raise UserError(
        f"{where}: {described[:80]} is no image; expected a PIL image, a (C, H, W) tensor, or a tuple or dict that "
        "holds one"
    )


def _tensor_shape(found: Image.Image | Tensor) -> tuple[int, ...] | None:
    """None for a picture."""
    return None if isinstance(found, Image.Image) else tuple(found.shape)


def _is_picture(shape: Sequence[int], channels: int) -> bool:
    return (len(shape) == 3 and shape[channels] in (1, 3) and min(shape) > 0) or (len(shape) == 2 and channels == -1)


def _digest(found: Image.Image | Tensor) -> bytes:
    return hashlib.sha256(np.asarray(found).tobytes()).digest()
