"""Inputs that are not images: arrays of features, series or tokens, in memory or mapped from a file."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from tllib_ancon.data.batches import tree_map
from tllib_ancon.data.images import DEEP_KINDS, Images, Positions, kind_of
from tllib_ancon.runtime.errors import BadImages, reading
from tllib_ancon.runtime.text import first_few

CHECKED = 2**27
"""Largest array, in bytes, that is checked before anything is written. A larger one is checked while it is read."""

MOST_NAMED = 5
"""Bad rows that an error names."""

ADVICE_FOR_ARRAYS = (
    "convert text to numbers and pad all rows to one length, or pass the column of paths alone, such as table['path']"
)

Array = np.ndarray[Any, Any] | Tensor

BRIGHT = 128
"""The largest value of floats from which they are pixels up to 255."""


class Rows(Images):
    """The rows of an array or tensor (N, ...) of floats; those of a small one are checked at once."""

    holds_tensors = True

    def __init__(self, rows: Array, name: str):
        self.rows = rows
        self.name = name
        if rows.nbytes <= CHECKED:
            self.at(np.arange(len(rows)))

    def __len__(self) -> int:
        return len(self.rows)

    def image(self, position: int) -> Tensor:
        return self.at(np.array([position]))[0]

    def at(self, positions: Positions) -> Tensor:
        if isinstance(self.rows, Tensor):
            chosen = self.rows[torch.from_numpy(positions)].detach().cpu().float()
        else:
            chosen = torch.from_numpy(np.array(self.rows[positions], dtype=np.float32))
        _require_finite(chosen, self.name, positions)
        return chosen


class Mapped(Images):
    """Several arrays with as many rows, which a model takes by their names: floats as float32, integers as int64."""

    holds_tensors = True

    def __init__(self, arrays: Mapping[str, Any], name: str):
        with reading(name, "arrays of numbers", ADVICE_FOR_ARRAYS):
            self.arrays = {key: on_cpu(torch.as_tensor(array)) for key, array in arrays.items()}
            lengths = {key: len(array) for key, array in self.arrays.items()}
        if len({*lengths.values()}) != 1:
            shown = ", ".join(f"{key} {length}" for key, length in lengths.items())
            raise BadImages(f"{name}: the arrays have different lengths ({shown})", "give each a row for every sample")
        for key, array in self.arrays.items():
            if array.is_floating_point():
                _require_finite(array, f"{name}, {key}", np.arange(len(self)))

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


def _require_finite(rows: Tensor, name: str, positions: Positions) -> None:
    is_finite = rows.reshape(len(rows), -1).isfinite().all(1).cpu().numpy()
    if is_finite.all():
        return
    bad_rows = positions[~is_finite].tolist()
    shown = first_few([str(row) for row in bad_rows], MOST_NAMED)
    raise BadImages(f"{name}: NaN or infinity in {len(bad_rows)} rows ({shown})", "remove them or fill them in")


def on_cpu(data: Any) -> Any:
    """The same data with tensors on the CPU: worker processes cannot read from a GPU."""
    if isinstance(data, Tensor):
        return data.detach().cpu().to_dense()
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
    where = getattr(data, "filename", None) or name
    kind = kind_of(data)
    if data.ndim == 0:
        raise BadImages(f"{where}: the array has no rows, it is one {kind}", "expected the shape (N, ...)")
    if _is_one_image(data, kind):
        shape = tuple(data.shape)
        raise BadImages(f"{where}: {shape} is the shape of one image", "pass a list of images, such as [image]")
    if _are_integers(data, kind):
        content = f"features are integers ({kind})"
        advice = "convert them to float32, or reshape pixels to (N, C, H, W)"
        if data.ndim > 2:
            content = f"images are {kind}"
            advice = "convert pixels from 0 to 255 to uint8, other values to float32"
        raise BadImages(f"{where}: {content}", advice)
    if not len(data) or "float" not in kind:
        return None
    return _rows_of_floats(data, where)


def _rows_of_floats(data: Array, where: str) -> Images | None:
    """Rows of floats; None of images, arrays (N, H, W, 3) of numbers from 0 to 1."""
    if not _starts_with_picture(data):
        return Rows(data, where)
    sample = np.asarray(data[: max(CHECKED // data[0].nbytes, 1)])
    least = float(sample.min())
    most = float(sample.max())
    if least >= 0 and BRIGHT <= most <= 255:
        raise BadImages(
            f"{where}: pixels are {data.dtype}, {least:g} to {most:g}", "convert them to uint8, or divide by 255"
        )
    if least < 0 or most > 1:
        return Rows(data, where)
    return None


def _is_one_image(data: Array, kind: str) -> bool:
    """Whether bytes are one image: an array (H, W, 3), or a tensor (3, H, W) as torchvision reads it."""
    if isinstance(data, Tensor):
        channels = data.shape[0]
    else:
        channels = data.shape[-1]
    return kind == "uint8" and data.ndim == 3 and channels == 3


def _are_integers(data: Array, kind: str) -> bool:
    """Whether rows are integers that are no pixels: bytes (N, H, W, ...), or images of more than 8 bits."""
    if kind == "uint8":
        return data.ndim < 3
    if kind == "uint16" and data.ndim == 3:
        return False
    if kind in DEEP_KINDS and data.ndim == 4:
        return False
    return kind.startswith(("int", "uint", "bool"))


def _starts_with_picture(data: Array) -> bool:
    """Whether the first row of an array is (H, W, 1) or (H, W, 3) of numbers from 0 to 1, or to 255."""
    if not isinstance(data, np.ndarray):
        return False
    first = np.asarray(data[0])
    if first.ndim != 3 or first.shape[-1] not in (1, 3):
        return False
    return bool(first.min() >= 0 and first.max() <= 255)
