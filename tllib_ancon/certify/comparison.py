"""What two models say of the same images, and where they disagree."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tllib_ancon.errors import UserError

Classes = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Comparison:
    """The classes that a start model and an adapted model say of N images.

    Args:
        start: (N,) integers in [0, K), the start model's classes
        adapted: (N,) integers in [0, K), the adapted model's classes
        names: of the N images, by which answers speak of them, e.g. paths below the folder of the data
        classes: names of the K classes

    Raises:
        UserError: predictions that are not N classes each, or models that are equal on all N images
    """

    start: Classes
    adapted: Classes
    names: Sequence[str]
    classes: Sequence[str]

    def __post_init__(self) -> None:
        for model in ("start", "adapted"):
            object.__setattr__(self, model, self._checked(model, np.asarray(getattr(self, model))))
        if not len(self.disagreements):
            raise UserError(
                f"nothing to certify: the start and the adapted model are equal on all {len(self):,} images"
            )

    def __len__(self) -> int:
        return len(self.names)

    @property
    def disagreements(self) -> Classes:
        """(M,) positions of the images on which the models say different classes, ascending."""
        return np.flatnonzero(self.start != self.adapted)

    @property
    def fingerprint(self) -> str:
        """Stands for the names and the predictions."""
        digest = hashlib.sha256("\n".join([*self.names, *self.classes]).encode(errors="surrogateescape"))
        digest.update(self.start.astype("<i8").tobytes())
        digest.update(self.adapted.astype("<i8").tobytes())
        return digest.hexdigest()[:16]

    def _checked(self, model: str, predictions: npt.NDArray[Any]) -> Classes:
        if predictions.shape != (len(self),) or predictions.dtype.kind not in "iu":
            raise UserError(
                f"the {model} model's predictions have shape {predictions.shape} and type {predictions.dtype}; give an "
                f"integer class for each of {len(self):,} images"
            )
        if not len(self) or predictions.min() < 0 or predictions.max() >= len(self.classes):
            raise UserError(f"the {model} model's predictions are not all classes from 0 to {len(self.classes) - 1}")
        return predictions.astype(np.int64)
