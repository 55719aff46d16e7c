"""What a run's selected model says of each image of the target: ``predictions.npz`` in the run directory."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tllib_ancon.errors import UserError
from tllib_ancon.training.files import write_whole

FILE = "predictions.npz"
REQUIRED = ("indices", "logits")
OPTIONAL = ("labels", "features", "votes")


@dataclass(frozen=True)
class SavedPredictions:
    """Arrays over the N images of the target.

    Attributes:
        indices: (N,) position of each image in the domain
        logits: (N, K) of the selected model
        labels: (N,) true classes, where the target has labels
        features: (N, D) what the head gets, float16
        votes: (N, K) confident votes at the end of the run; a row without any vote for an image that was held out
    """

    indices: np.ndarray
    logits: np.ndarray
    labels: np.ndarray | None = None
    features: np.ndarray | None = None
    votes: np.ndarray | None = None


def write_predictions(run: Path, saved: SavedPredictions) -> None:
    """Write ``predictions.npz`` whole.

    Raises:
        UserError: it could not be written (why)
    """
    arrays = {name: array for name, array in vars(saved).items() if array is not None}
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write_whole(run / FILE, lambda file: file.write(content.getbuffer()))


def read_predictions(run: Path) -> SavedPredictions | None:
    """The predictions that a run kept, or None.

    Raises:
        UserError: the file is damaged, holds objects, or arrays that do not belong together
    """
    path = run / FILE
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in (*REQUIRED, *OPTIONAL) if name in file.files}
    except Exception as error:  # damaged bytes can lead the reader to any error
        raise UserError(f"{path} cannot be read as arrays ({error})") from error
    missing = [name for name in REQUIRED if name not in arrays]
    if missing:
        raise UserError(f"{path} has no array {missing[0]!r}")
    sizes = {name: array.shape[:1] for name, array in arrays.items()}
    if len(set(sizes.values())) != 1:
        raise UserError(f"{path}: its arrays have different lengths ({sizes})")
    return SavedPredictions(**arrays)
