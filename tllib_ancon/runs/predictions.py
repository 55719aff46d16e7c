"""``predictions.npz``: the outputs of the adapted model on the target."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from tllib_ancon.runs.state import Array, read_arrays, write_arrays
from tllib_ancon.runtime.errors import reading

PREDICTIONS = "predictions.npz"


@dataclass(frozen=True)
class SavedPredictions:
    """Outputs of the adapted model on the N images of the target.

    Attributes:
        indices: (N,) position of each image in the list of the domain, of which images may have been left out
        logits: (N, K)
        labels: (N,) true classes
        features: (N, D) what the head gets, float16, or float32 if a value is too large for that
        votes: (N, K) confident votes; a row without any vote for an image that was held out
        paths: (N,) where the images are files
    """

    indices: Array
    logits: Array
    labels: Array | None = None
    features: Array | None = None
    votes: Array | None = None
    paths: Array | None = None


def predictions_of(
    positions: Array,
    logits: Tensor,
    features: Tensor,
    labels: Array | None,
    votes: Tensor | None,
    paths: Sequence[str] | None,
) -> SavedPredictions:
    """The predictions in the smallest types that hold them."""
    compact_features = features.cpu().numpy()
    if np.abs(compact_features).max(initial=0) <= np.finfo(np.float16).max:
        compact_features = compact_features.astype(np.float16)
    return SavedPredictions(
        indices=positions,
        logits=logits.cpu().numpy(),
        labels=labels,
        features=compact_features,
        votes=_smallest_votes(votes),
        paths=None if paths is None else np.asarray(paths),
    )


def _smallest_votes(votes: Tensor | None) -> Array | None:
    """Votes as whole numbers where they are, else as float32."""
    if votes is None:
        return None
    array = votes.numpy()
    if (array == array.round()).all():
        return array.astype(np.uint16)
    return array.astype(np.float32)


def write_predictions(run: Path, predictions: SavedPredictions) -> None:
    write_arrays(run / PREDICTIONS, vars(predictions))


def read_predictions(run: Path) -> SavedPredictions | None:
    path = run / PREDICTIONS
    if not path.is_file():
        return None
    with reading(path, "predictions"):
        return SavedPredictions(**read_arrays(path, SavedPredictions.__dataclass_fields__))
