"""Inputs that are not images: arrays of features, series or tokens, in memory or mapped from a file."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Subset, TensorDataset

from tllib_ancon.data.images import DEEP_KINDS, Images, Positions
from tllib_ancon.runtime.errors import UserError, reading

ARRAYS = "Arrays"
"""Name of the dataset whose root is a file ``x.npy`` (N, ...); labels may lie beside it in ``y.npy`` (N,)."""

CHECKED = 2**27
"""Largest array, in bytes, that is checked before anything is written. A larger one is checked while it is read."""

Array = np.ndarray[Any, Any] | Tensor


class Rows(Images):
    """The rows of an array or tensor (N, ...) of floats; those of a small one are checked at once."""

    holds_tensors = True

    def __init__(self, rows: Array, name: str):
        self.rows, self.name = rows, name
        if rows.nbytes <= CHECKED:
            self.at(np.arange(len(rows)))

    def __len__(self) -> int:
        return len(self.rows)

    def image(self, position: int) -> Tensor:
        return self.at(np.array([position]))[0]

    def at(self, positions: Positions) -> Tensor:
        if isinstance(self.rows, Tensor):
            found = self.rows[torch.from_numpy(positions)].detach().cpu().float()
        else:
            found = torch.from_numpy(np.array(self.rows[positions], dtype=np.float32))
        require_finite(found, self.name, positions)
        return found


@dataclass(frozen=True)
class Layout:
    """Rows of several arrays in one vector of int64; as a forward hook it gives a model the arrays by name."""

    shapes: Mapping[str, Sequence[int]]
    floats: Sequence[str]

    def unpack(self, packed: Tensor) -> dict[str, Tensor]:
        """Rows (B, D) -> each array (B, ...)."""
        parts = torch.split(packed, [math.prod(shape) for shape in self.shapes.values()], 1)
        named = zip(self.shapes.items(), parts, strict=True)
        arrays = {key: part.reshape(len(packed), *shape) for (key, shape), part in named}
        return arrays | {key: arrays[key].int().view(torch.float32) for key in self.floats}

    def pack(self, arrays: Mapping[str, Tensor]) -> Tensor:
        rows = (arrays[key].reshape(len(arrays[key]), -1) for key in self.shapes)
        return torch.cat([(r.float().view(torch.int32) if r.is_floating_point() else r).long() for r in rows], 1)

    def __call__(self, module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        packed = len(args) == 1 and isinstance(args[0], Tensor) and args[0].dtype == torch.int64 and args[0].ndim == 2
        return ((), {**named, **self.unpack(args[0])}) if packed else None


class Mapped(Images):
    """Several arrays with as many rows, which a model takes by their names."""

    holds_tensors = True

    def __init__(self, arrays: Mapping[str, Any], name: str):
        with reading(name, "arrays of numbers", "; convert text to numbers and pad all rows to one length"):
            self.arrays = {key: on_cpu(torch.as_tensor(array)) for key, array in arrays.items()}
            lengths = {key: len(array) for key, array in self.arrays.items()}
        if len({*lengths.values()}) != 1:
            shown = ", ".join(f"{key} {length}" for key, length in lengths.items())
            raise UserError(f"{name}: the arrays have different lengths ({shown}); give each a row for every sample")
        floats = [key for key, array in self.arrays.items() if array.is_floating_point()]
        for key in floats:
            require_finite(self.arrays[key], f"{name}, {key}", np.arange(len(self)))
        self.layout = Layout({key: [*array.shape[1:]] for key, array in self.arrays.items()}, floats)

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def image(self, position: int) -> Tensor:
        return self.layout.pack({key: array[position : position + 1] for key, array in self.arrays.items()})[0]


def require_finite(rows: Tensor, name: str, positions: Positions) -> None:
    bad = positions[~rows.reshape(len(rows), -1).isfinite().all(1).cpu().numpy()].tolist()
    if bad:
        some = ", ".join(map(str, bad[:5])) + ", ..." * (len(bad) > 5)
        raise UserError(f"{name}: NaN or infinity in {len(bad)} rows ({some}); remove them or fill them in")


def on_cpu(data: Any) -> Any:
    """The same data with tensors on the CPU: worker processes cannot read from a GPU."""
    if isinstance(data, Tensor):
        return data.detach().cpu()
    if isinstance(data, TensorDataset):
        return TensorDataset(*map(on_cpu, data.tensors))
    if isinstance(data, Subset):
        return Subset(on_cpu(data.dataset), data.indices)
    if type(data) in (list, tuple):
        return type(data)(map(on_cpu, data))
    if isinstance(data, dict):
        return {name: on_cpu(value) for name, value in data.items()}
    return data


def rows_of(data: Any, name: str) -> Images | None:
    """Rows of an array, tensor or mapping that holds no images; None for all else."""
    if isinstance(data, Mapping):
        return Mapped(data, name)
    if not isinstance(data, np.ndarray | Tensor):
        return None
    name, kind = getattr(data, "filename", None) or name, str(data.dtype).removeprefix("torch.")
    if data.ndim == 0:
        raise UserError(f"{name}: the array has no rows, it is one {kind}; expected the shape (N, ...)")
    if kind in DEEP_KINDS and (data.ndim == 4 or (data.ndim == 3 and kind == "uint16")):
        return None  # images of more than 8 bits
    if kind.startswith(("int", "uint", "bool")) and (kind != "uint8" or data.ndim < 3):
        raise UserError(f"{name}: features are integers ({kind}); convert them to float32")
    first = np.asarray(data[0]) if len(data) and isinstance(data, np.ndarray) else np.empty(0)
    images = first.ndim == 3 and first.shape[-1] in (1, 3) and first.min() >= 0 and first.max() <= 1
    return Rows(data, name) if len(data) and "float" in kind and not images else None
