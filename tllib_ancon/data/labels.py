"""Labels as people have them: numbers from 0 or from 1, names of classes, one-hot rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tllib_ancon.runtime.errors import BadImages, unknown_name

Labels = NDArray[np.int64]
"""(N,) classes, from 0 to K - 1."""


def as_numbers(title: str, labels: ArrayLike, names: Sequence[str] = ()) -> NDArray[Any]:
    """The labels as an array; each text becomes its position among the ``names`` of the classes.

    Raises:
        UserError: labels in another form, with what to pass in their place
    """
    values = np.asarray(labels)
    if values.dtype == object and all(isinstance(value, int | np.integer) for value in values.flat):
        values = values.astype(np.int64)
    if values.ndim == 1 and len(values) and all(isinstance(value, str) for value in values.tolist()):
        return _numbers_of_names(title, values.tolist(), names)
    expected = _expected_for(values)
    if expected:
        raise BadImages(f"{title} are {values.dtype} of shape {values.shape}", f"pass {expected}")
    return values


def _expected_for(values: NDArray[Any]) -> str:
    """What to pass in place of labels that are not one whole number for each image; empty for these."""
    kind = values.dtype.kind
    if values.ndim == 2 and values.shape[1] == 1:
        return "one number for each image, labels[:, 0]"
    if values.ndim == 2 and kind in "iufb" and _is_one_hot(values):
        return "the number of each class in place of one-hot rows, labels.argmax(1)"
    if kind == "f" and np.isnan(values).any():
        return "images whose label is known, as some are NaN"
    if values.ndim == 1 and kind == "f" and len(values) and (values == np.rint(values)).all():
        return "whole numbers, labels.astype(int)"
    if values.ndim == 1 and kind == "b":
        return "the number of each class, labels.astype(int)"
    return ""


def _is_one_hot(values: NDArray[Any]) -> bool:
    return bool(((values == 0) | (values == 1)).all() and (values.sum(1) == 1).all())


def _numbers_of_names(title: str, labels: Sequence[str], names: Sequence[str]) -> NDArray[Any]:
    positions = {name: label for label, name in enumerate(names)}
    strange = next((label for label in labels if label not in positions), None)
    if strange is not None and list(names) == list(map(str, range(len(names)))):
        raise BadImages(
            f"{title} are text, {labels[0]!r} first, and the names of the classes are not known",
            "pass numbers from 0 in the order of the model's outputs",
        )
    if strange is not None:
        raise unknown_name(f"class in {title}:", strange, names)
    return np.array([positions[label] for label in labels])


def counted_from_one(labels: NDArray[Any], num_classes: int) -> str | None:
    """A line for labels that seem to count from 1, so that they are scored against the wrong classes; else None."""
    if not len(labels) or labels.min() < 1:
        return None
    lowest = int(labels.min())
    largest = int(labels.max())
    if lowest > 1 and largest < num_classes - 1:
        return None
    return (
        f"no label is 0: they range from {lowest} to {largest}, and the model has the classes 0 to {num_classes - 1}; "
        "if the labels count from 1, subtract 1"
    )
