"""Predictions of the adapted model on the target as NumPy arrays: ``predictions.npz``."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from tllib_ancon.data.domain import Domain
from tllib_ancon.errors import UserError, reading
from tllib_ancon.training.files import write_bytes
from tllib_ancon.training.inference import Predictions

Array = npt.NDArray[Any]
FILE = "predictions.npz"
FORM = {
    "indices": ("N", "iu"),
    "logits": ("NK", "f"),
    "labels": ("N", "iu"),
    "features": ("ND", "f"),
    "votes": ("NK", "iuf"),
    "paths": ("N", "U"),
}
"""Array -> a letter for each of its sizes, equal where the letters are, and NumPy's letters of its kinds."""


@dataclass(frozen=True)
class SavedPredictions:
    """Outputs of one model on the N images of the target. Other shapes or kinds of arrays are an error."""

    indices: Array  # (N,) position of each image in the list of the domain, of which images may have been left out
    logits: Array  # (N, K)
    labels: Array | None = None  # (N,) true classes
    features: Array | None = None  # (N, D) what the head gets, float16, or float32 if a value is too large for that
    votes: Array | None = None  # (N, K) confident votes; a row without any vote for an image that was held out
    paths: Array | None = None  # (N,) where the images are files

    def __post_init__(self) -> None:
        sizes: dict[str, int] = {}
        for name, (letters, kinds) in FORM.items():
            if (array := getattr(self, name)) is None:
                continue
            fits = array.ndim == len(letters) and array.dtype.kind in kinds
            if not fits or any(sizes.setdefault(*pair) != pair[1] for pair in zip(letters, array.shape, strict=True)):
                raise UserError(
                    f"array {name!r} of shape {array.shape} and type {array.dtype} is wrong; make the run again"
                )
        if sizes["N"] < 1 or sizes["K"] < 2:
            raise UserError(
                f"array 'logits' {self.logits.shape} has no rows, or fewer than two classes; make the run again"
            )
        if not np.isfinite(self.logits).all():
            raise UserError(
                "array 'logits' has values that are not finite: the model has diverged; adapt with a smaller `lr`"
            )
        if self.labels is not None and (self.labels.min() < 0 or self.labels.max() >= sizes["K"]):
            raise UserError(f"array 'labels' has values outside 0 to {sizes['K'] - 1}")


def keep_predictions(path: Path, predictions: Predictions, target: Domain, votes: Tensor | None) -> None:
    """Write logits, features, labels, votes (N, K) and paths of all images of a target."""
    features, counted = predictions.features.cpu().numpy(), None if votes is None else votes.numpy()
    if np.abs(features).max(initial=0) <= np.finfo(np.float16).max:
        features = features.astype(np.float16)
    if counted is not None:
        counted = counted.astype(np.uint16 if (counted == counted.round()).all() else np.float32)
    paths = None if target.paths is None else np.asarray(target.paths)
    logits = predictions.logits.cpu().numpy()
    saved = SavedPredictions(target.positions, logits, target.labels, features, counted, paths)
    write_arrays(path, vars(saved))


def read_predictions(run: Path) -> SavedPredictions | None:
    """The predictions that a run kept, or None."""
    if not (path := run / FILE).is_file():
        return None
    with reading(path, "predictions"):
        try:
            return SavedPredictions(**read_arrays(path, FORM))
        except UserError as error:
            raise ValueError(error) from None


def write_arrays(path: Path, arrays: Mapping[str, Array | None]) -> None:
    """Write those arrays that there are as a compressed ``.npz``, whole."""
    content = io.BytesIO()
    np.savez_compressed(content, **{name: array for name, array in arrays.items() if array is not None})  # type: ignore[arg-type]
    write_bytes(path, content.getbuffer())


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, Array]:
    """The arrays of these names that a ``.npz`` has. No object is unpickled."""
    with reading(path, "arrays"), np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in names if name in arrays.files}
