"""The predictions of a run's selected model on each image of the target: ``predictions.npz`` in the run directory."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from tllib_ancon.errors import UserError, megabytes, one_line
from tllib_ancon.training.files import write_whole
from tllib_ancon.training.passes import Predictions

FILE = "predictions.npz"
MOST_BYTES = 2**32
MOST_TIMES = 64
FEW_BYTES = 2**26
"""A file of more than 64 MiB unpacked, and 64 times its size or 4 GiB, holds no predictions."""

Array = npt.NDArray[Any]
LARGEST_HALF = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class SavedPredictions:
    """Arrays over the N images of the target; logits, features and votes are of the selected epoch.

    Attributes:
        indices: (N,) position of each image in the list of the domain, also where images of the list were left out
        logits: (N, K) float
        labels: (N,) integer, true classes, where the target has labels
        features: (N, D) what the head gets, float16, or float32 if a value is too large for that
        votes: (N, K) confident votes; a row without any vote for an image that was held out
        paths: (N,) file of each image, where the images are files

    Raises:
        UserError: an array of another shape or kind; labels outside 0 to K - 1; logits that are not finite
    """

    indices: Array
    logits: Array
    labels: Array | None = None
    features: Array | None = None
    votes: Array | None = None
    paths: Array | None = None

    def __post_init__(self) -> None:
        for name, (dimensions, kinds) in _FORM.items():
            array = getattr(self, name)
            if array is not None and (array.ndim != dimensions or array.dtype.kind not in kinds):
                raise UserError(f"array {name!r} has shape {array.shape} and type {array.dtype}: not that of {name}")
        lengths = {name: len(array) for name, array in vars(self).items() if array is not None}
        if len(set(lengths.values())) != 1 or not len(self.logits):
            raise UserError(f"its arrays have different lengths, or none ({lengths})")
        num_classes = self.logits.shape[1]
        if num_classes < 2:
            raise UserError(f"array 'logits' has {num_classes} columns: fewer than two classes")
        if not np.isfinite(self.logits).all():
            raise UserError("array 'logits' has values that are not finite: the model has diverged")
        if self.labels is not None and (self.labels.min() < 0 or self.labels.max() >= num_classes):
            raise UserError(f"array 'labels' has labels outside 0 to {num_classes - 1}")
        if self.votes is not None and self.votes.shape != self.logits.shape:
            raise UserError(f"array 'votes' has shape {self.votes.shape}, and the logits {self.logits.shape}")


_FORM = {
    "indices": (1, "iu"),
    "logits": (2, "f"),
    "labels": (1, "iu"),
    "features": (2, "f"),
    "votes": (2, "iuf"),
    "paths": (1, "U"),
}
"""Array -> its number of dimensions and NumPy's letters of its kinds."""


def keeper(
    run: Path,
    positions: Sequence[int],
    paths: Sequence[str] | None = None,
    labels: Sequence[int] | None = None,
) -> Callable[[Predictions, Tensor | None], None]:
    """Writes the predictions and the votes that it is called with to the run directory ``run``.

    Args:
        run: folder of the run
        positions: of each image of the target in the list of its domain
        paths, labels: of each image, where there are any
    """

    def keep(predictions: Predictions, votes: Tensor | None) -> None:
        rows = predictions.indices.numpy()

        def chosen(values: Sequence[Any] | None) -> Array | None:
            return None if values is None else np.asarray(values)[rows]

        whole = votes is not None and bool((votes == votes.round()).all())
        saved = SavedPredictions(
            np.asarray(positions, dtype=np.int64)[rows],
            predictions.logits.cpu().numpy(),
            chosen(labels),
            _compact(predictions.features.cpu().numpy()),
            None if votes is None else votes[rows].numpy().astype(np.uint16 if whole else np.float32),
            chosen(paths),
        )
        write_predictions(run, saved)

    return keep


def write_predictions(run: Path, saved: SavedPredictions) -> None:
    """Write ``predictions.npz`` whole.

    Raises:
        UserError: it could not be written (why)
    """
    write_arrays(run / FILE, {name: array for name, array in vars(saved).items() if array is not None})


def read_predictions(run: Path) -> SavedPredictions | None:
    """The predictions that a run kept, or None.

    Raises:
        UserError: the file is damaged, holds objects, too much, or arrays that are not predictions
    """
    path = run / FILE
    if not path.is_file():
        return None
    arrays = read_arrays(path, _FORM)
    missing = [name for name in ("indices", "logits") if name not in arrays]
    if missing:
        raise UserError(f"{path} has no array {missing[0]!r}")
    try:
        return SavedPredictions(**arrays)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def write_arrays(path: Path, arrays: dict[str, Array]) -> None:
    """Write a compressed ``.npz`` whole.

    Raises:
        UserError: it could not be written (why)
    """
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    write_whole(path, lambda file: file.write(content.getbuffer()))


def read_arrays(path: Path, names: Sequence[str] | dict[str, Any]) -> dict[str, Array]:
    """Those arrays of a ``.npz`` that it has. No object is unpickled, and nothing is unpacked that is too large.

    Raises:
        UserError: the file is damaged, holds objects, or unpacks to too much
    """
    try:
        with zipfile.ZipFile(path) as file:
            unpacked = sum(entry.file_size for entry in file.infolist())
        packed = path.stat().st_size
        if unpacked > FEW_BYTES and unpacked > min(MOST_BYTES, MOST_TIMES * packed):
            raise ValueError(f"{megabytes(packed)} that unpack to {megabytes(unpacked)}")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in names if name in arrays.files}
    except Exception as error:  # damaged bytes can lead the readers to any error
        raise UserError(f"{path} cannot be read as arrays ({one_line(error)})") from error


def _compact(features: Array) -> Array:
    return features if np.abs(features).max(initial=0) > LARGEST_HALF else features.astype(np.float16)
