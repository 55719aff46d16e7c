"""Labels: one whole number for each image, the position of its class among the model's outputs."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tllib_ancon.data.readers import on_cpu
from tllib_ancon.runtime.errors import BadImages

Labels = NDArray[np.int64]
"""(N,) classes, from 0 to K - 1."""


def checked_labels(
    title: str, labels: ArrayLike, count: int, num_classes: int | None = None, unknown: bool = False
) -> Labels:
    """(N,) labels from 0 to K - 1, where K is known; with ``unknown`` a negative one stands for none.

    Raises:
        BadImages: labels of another form or range
    """
    values = np.asarray(on_cpu(labels))
    last = "K - 1" if num_classes is None else num_classes - 1
    action = f"pass for each of {count:,} images the whole number of its class, from 0 to {last}"
    if unknown:
        action += ", or -1"
    problem = ""
    if values.shape != (count,) or values.dtype.kind not in "iu":
        problem = f"are {values.dtype} of shape {values.shape}"
    elif _are_out_of_range(values, num_classes, unknown):
        problem = f"range from {values.min()} to {values.max()}"
        if values.min() == 1 and values.max() == num_classes:
            action += "; if they count from 1, subtract 1"
    if problem:
        raise BadImages(f"{title} {problem}", action, setting="labels")
    return values.astype(np.int64)


def _are_out_of_range(values: NDArray[np.int64], num_classes: int | None, unknown: bool) -> bool:
    is_above = num_classes is not None and values.max(initial=0) >= num_classes
    is_below = not unknown and values.min(initial=0) < 0
    return bool(is_above or is_below)
