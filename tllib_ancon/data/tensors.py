"""Inputs that are not images: arrays of features, series or tokens, in memory or mapped from a file."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tllib_ancon.data.images import Images, Positions
from tllib_ancon.errors import UserError

ARRAYS = "Arrays"
"""Name of the dataset whose root is a file ``x.npy`` (N, ...); labels may lie beside it in ``y.npy`` (N,)."""

Array = np.ndarray[Any, Any] | Tensor


class Rows(Images):
    """The rows of an array or tensor (N, ...) of floats, which a model takes without any preprocessing."""

    holds_tensors = True

    def __init__(self, rows: Array, name: str):
        self.rows, self.name = rows, name

    def __len__(self) -> int:
        return len(self.rows)

    def image(self, position: int) -> Tensor:
        return self.at(np.array([position]))[0]

    def at(self, positions: Positions) -> Tensor:
        """Several rows at once, (B, ...) float32."""
        if isinstance(self.rows, Tensor):
            found = self.rows[torch.from_numpy(positions)].detach().cpu().float()
        else:
            found = torch.from_numpy(np.array(self.rows[positions], dtype=np.float32))
        bad = positions[~found.reshape(len(found), -1).isfinite().all(1).numpy()]
        if len(bad):
            some = ", ".join(map(str, bad[:5].tolist()))
            raise UserError(f"{self.name}, row {some}: {len(bad)} with NaN or infinity; remove them or fill them in")
        return found

    def content(self) -> bytes:
        return content_of(self)


@dataclass(frozen=True)
class Layout:
    """How rows of several arrays, such as tokens and their mask, lie in one vector of int64: loaders and loops see one
    tensor. As a forward hook it gives a model the arrays by their names."""

    shapes: Mapping[str, Sequence[int]]
    floats: Sequence[str]

    def unpack(self, packed: Tensor) -> dict[str, Tensor]:
        """Rows (B, D) -> each array (B, ...)."""
        parts = torch.split(packed, [math.prod(shape) for shape in self.shapes.values()], 1)
        named = zip(self.shapes.items(), parts, strict=True)
        arrays = {key: part.reshape(len(packed), *shape) for (key, shape), part in named}
        return arrays | {key: arrays[key].int().view(torch.float32) for key in self.floats}

    def pack(self, arrays: Mapping[str, Tensor]) -> Tensor:
        """The inverse of :meth:`unpack`."""
        return torch.cat([_as_integers(arrays[key]).flatten(1) for key in self.shapes], 1)

    def __call__(self, module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        packed = len(args) == 1 and isinstance(args[0], Tensor) and args[0].dtype == torch.int64 and args[0].ndim == 2
        return ((), {**named, **self.unpack(args[0])}) if packed else None


class Mapped(Images):
    """Several arrays with as many rows, which a model takes by their names."""

    holds_tensors = True

    def __init__(self, arrays: Mapping[str, Any], name: str):
        self.arrays = {key: torch.as_tensor(array) for key, array in arrays.items()}
        if len({len(array) for array in self.arrays.values()}) != 1:
            lengths = ", ".join(f"{key} {len(array)}" for key, array in self.arrays.items())
            raise UserError(f"{name}: the arrays have different lengths ({lengths}); give each a row for every sample")
        self.name = name
        floats = [key for key, array in self.arrays.items() if array.is_floating_point()]
        self.layout = Layout({key: array.shape[1:] for key, array in self.arrays.items()}, floats)

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def image(self, position: int) -> Tensor:
        rows = {key: array[position] for key, array in self.arrays.items()}
        for key in self.layout.floats:
            if not rows[key].isfinite().all():
                raise UserError(f"{self.name}, row {position} of {key}: it has NaN or infinity; remove the row")
        return self.layout.pack({key: row[None] for key, row in rows.items()})[0]

    def content(self) -> bytes:
        return content_of(self)


def content_of(images: Images) -> bytes:
    """Checksums of at most eight rows."""
    sampled = np.unique(np.linspace(0, len(images) - 1, 8).astype(int)).tolist()
    return b"".join(hashlib.sha256(np.asarray(images.image(at)).tobytes()).digest() for at in sampled)


def _as_integers(values: Tensor) -> Tensor:
    return values.float().view(torch.int32).long() if values.is_floating_point() else values.long()


def rows_of(data: Any, name: str) -> Images | None:
    """Rows of an array, tensor or mapping that holds no images; None for all else."""
    if isinstance(data, Mapping):
        return Mapped(data, name)
    if not isinstance(data, np.ndarray | Tensor) or not len(data):
        return None
    if isinstance(data, Tensor):
        floats = data.is_floating_point()
        integers = not floats and data.ndim < 3
    else:
        first = np.asarray(data[0])
        images = first.ndim == 3 and first.shape[-1] in (1, 3) and first.min() >= 0 and first.max() <= 1
        floats, integers = data.dtype.kind == "f" and not images, data.dtype.kind in "iub" and data.ndim < 3
    if integers:
        raise UserError(f"{name}: features are integers ({data.dtype}); convert them to float32")
    return Rows(data, name) if floats else None
