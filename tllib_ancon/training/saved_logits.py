"""Logits of every epoch on the whole target: ``logits/NAME.npz`` in the run directory, for criteria that come later.

A name is ``epoch-000`` (the start), ``epoch-001``, … as a run keeps them with ``save_logits``, or that of another
candidate for the same images, such as ``adabn`` or ``mixed-0.25``, which :func:`write_logits` puts beside them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tllib_ancon.errors import UserError
from tllib_ancon.training.passes import Predictions
from tllib_ancon.training.saved_predictions import Array, read_arrays, write_arrays

FOLDER = "logits"
EPOCH = "epoch-{:03d}"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclass(frozen=True)
class SavedLogits:
    """The logits of one candidate on the N images of the target.

    Attributes:
        indices: (N,) position of each image in the list of the domain
        logits: (N, K) float
        labels: (N,) integer, true classes, where the target has labels
        dropout: (T, N, K) float, probabilities of passes with dropout
        mixed: (M, K) float, logits of mixtures of two images
        first, second: (M,) integer, rows of the images of each mixture; the first weighs more

    Raises:
        UserError: an array of another shape or kind; labels or rows out of range; logits that are not finite
    """

    indices: Array
    logits: Array
    labels: Array | None = None
    dropout: Array | None = None
    mixed: Array | None = None
    first: Array | None = None
    second: Array | None = None

    def __post_init__(self) -> None:
        for name, (dimensions, kinds) in _FORM.items():
            array = getattr(self, name)
            if array is not None and (array.ndim != dimensions or array.dtype.kind not in kinds):
                raise UserError(f"array {name!r} has shape {array.shape} and type {array.dtype}: not that of {name}")
        num_samples, num_classes = self.logits.shape
        if num_samples < 1 or num_classes < 2 or not np.isfinite(self.logits).all():
            raise UserError(f"array 'logits' {self.logits.shape} has too few rows or columns, or is not finite")
        mixtures = [array for array in (self.mixed, self.first, self.second) if array is not None]
        shapes = {
            "indices": self.indices.shape == (num_samples,),
            "labels": self.labels is None or self.labels.shape == (num_samples,),
            "dropout": self.dropout is None or self.dropout.shape[1:] == self.logits.shape,
            "mixed": self.mixed is None or self.mixed.shape[1:] == (num_classes,),
            "first": len(mixtures) in (0, 3) and len({len(array) for array in mixtures}) < 2,
        }
        for name, fits in shapes.items():
            if not fits:
                raise UserError(f"array {name!r} does not belong to logits of shape {self.logits.shape}")
        for name, array, end in (
            ("labels", self.labels, num_classes),
            ("first", self.first, num_samples),
            ("second", self.second, num_samples),
        ):
            if array is not None and len(array) and (array.min() < 0 or array.max() >= end):
                raise UserError(f"array {name!r} has values outside 0 to {end - 1}")


_FORM = {
    "indices": (1, "iu"),
    "logits": (2, "f"),
    "labels": (1, "iu"),
    "dropout": (3, "f"),
    "mixed": (2, "f"),
    "first": (1, "iu"),
    "second": (1, "iu"),
}
"""Array -> its number of dimensions and NumPy's letters of its kinds."""


def keeper(
    run: Path, positions: Sequence[int], labels: Sequence[int] | None = None
) -> Callable[[int, Predictions], None]:
    """Writes the predictions of each epoch that it is called with to the run directory ``run``.

    Args:
        run: folder of the run
        positions: of each image of the target in the list of its domain
        labels: of each image, where there are any
    """

    def keep(epoch: int, predictions: Predictions) -> None:
        rows = predictions.indices.numpy()
        saved = SavedLogits(
            np.asarray(positions, dtype=np.int64)[rows],
            predictions.logits.cpu().numpy(),
            None if labels is None else np.asarray(labels)[rows],
        )
        write_logits(run, EPOCH.format(epoch), saved)

    return keep


def write_logits(run: Path, name: str, saved: SavedLogits) -> None:
    """Write ``logits/NAME.npz`` whole.

    Raises:
        UserError: a name that is none, or it could not be written (why)
    """
    if not NAME.fullmatch(name):
        raise UserError(f"{name!r} is no name of a candidate; give letters, digits, and . _ + - between them")
    folder = run / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made ({error.strerror})") from error
    write_arrays(folder / f"{name}.npz", {key: array for key, array in vars(saved).items() if array is not None})


def read_logits(run: Path) -> dict[str, SavedLogits]:
    """Every candidate that a run kept, by its name: the epochs in their order, then the others by their names.

    Raises:
        UserError: a file is damaged, holds objects, too much, or arrays that are no logits; candidates for other images
    """
    paths = sorted((run / FOLDER).glob("*.npz"), key=lambda path: (not path.stem.startswith("epoch-"), path.stem))
    candidates: dict[str, SavedLogits] = {}
    for path in paths:
        arrays = read_arrays(path, _FORM)
        missing = [name for name in ("indices", "logits") if name not in arrays]
        if missing:
            raise UserError(f"{path} has no array {missing[0]!r}")
        try:
            candidates[path.stem] = SavedLogits(**arrays)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        first = next(iter(candidates.values()))
        if first.logits.shape != candidates[path.stem].logits.shape or (first.indices != arrays["indices"]).any():
            raise UserError(f"{path} is of other images or classes than {paths[0].name} beside it")
    return candidates


def remove_logits(run: Path) -> None:
    """Remove every candidate of a run."""
    for path in (run / FOLDER).glob("*.npz"):
        path.unlink()
