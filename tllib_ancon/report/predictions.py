"""What a run's selected model says of each image of the target: ``predictions.npz`` in the run directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tllib_ancon.errors import UserError

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
        features: (N, D) what the head gets
        votes: (N, K) confident votes at the end of the run; a row without any vote for an image that was held out
    """

    indices: np.ndarray
    logits: np.ndarray
    labels: np.ndarray | None = None
    features: np.ndarray | None = None
    votes: np.ndarray | None = None


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
