"""Inputs that are not images: arrays of features, series or tokens, in memory or mapped from a file."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from tllib_ancon.data.batches import tree_map
from tllib_ancon.data.images import DEEP_KINDS, Images, Positions
from tllib_ancon.runtime.errors import UserError, reading

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


class Mapped(Images):
    """Several arrays with as many rows, which a model takes by their names: floats as float32, integers as int64."""

    holds_tensors = True

    def __init__(self, arrays: Mapping[str, Any], name: str):
        with reading(name, "arrays of numbers", "; convert text to numbers and pad all rows to one length"):
            self.arrays = {key: on_cpu(torch.as_tensor(array)) for key, array in arrays.items()}
            lengths = {key: len(array) for key, array in self.arrays.items()}
        if len({*lengths.values()}) != 1:
            shown = ", ".join(f"{key} {length}" for key, length in lengths.items())
            raise UserError(f"{name}: the arrays have different lengths ({shown}); give each a row for every sample")
        for key, array in self.arrays.items():
            if array.is_floating_point():
                require_finite(array, f"{name}, {key}", np.arange(len(self)))

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def image(self, position: int) -> dict[str, Tensor]:
        return tree_map(lambda rows: rows[0], self.at(np.array([position])))  # type: ignore[no-any-return]

    def at(self, positions: Positions) -> dict[str, Tensor]:
        places = torch.from_numpy(positions)
        return {key: _in_usual_type(array[places]) for key, array in self.arrays.items()}


def _in_usual_type(rows: Tensor) -> Tensor:
    """Rows in the types that layers take: float32, int64 or bool."""
    if rows.is_floating_point():
        return rows.float()
    if rows.dtype == torch.bool:
        return rows
    return rows.long()


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
        raise UserError(
            f"{name}: features are integers ({kind}); convert them to float32, or reshape pixels to (N, C, H, W)"
        )
    first = np.asarray(data[0]) if len(data) and isinstance(data, np.ndarray) else np.empty(0)
    images = first.ndim == 3 and first.shape[-1] in (1, 3) and first.min() >= 0 and first.max() <= 1
    return Rows(data, name) if len(data) and "float" in kind and not images else None
