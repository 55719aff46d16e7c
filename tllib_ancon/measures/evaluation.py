"""Evaluation with labels: accuracy, per-class accuracy and calibration (Section 4.3.3).

Accuracies are in percent. The expected calibration error (ECE) is in [0, 1]. Every function raises a
:class:`~tllib_ancon.UserError` for other shapes than it says, for no sample, and for labels out of range.
"""

import math

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tllib_ancon.config.arguments import validated
from tllib_ancon.config.types import Number
from tllib_ancon.measures.selection import checked_probabilities
from tllib_ancon.runtime.errors import NotFinite, UserError

NUM_BINS = 15
"""Equal-width confidence bins over [0, 1]. The paper does not state its number."""

_BELOW_ONE = 1 - 2**-24
"""The float32 below 1."""


def confusion_matrix(predictions: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Counts of samples by label (row) and prediction (column).

    Shape: predictions, labels (N,) integer in [0, K), K being ``num_classes``; output (K, K) int64.
    """
    from torchmetrics.functional.classification import multiclass_confusion_matrix

    _check_classes("predictions", predictions, num_classes, len(predictions))
    _check_classes("labels", labels, num_classes, len(predictions))
    return multiclass_confusion_matrix(predictions, labels, num_classes, validate_args=False)


@validated
def expected_calibration_error(
    probabilities: ArrayLike | Tensor, labels: ArrayLike | Tensor, num_bins: Number = NUM_BINS
) -> float:
    r"""Expected calibration error :math:`\sum_g \frac{|G_g|}{N} |\mathrm{acc}(G_g) - \mathrm{conf}(G_g)|`.

    Bin :math:`g = 0, \dots, G-1` holds the confidences (largest probabilities) in :math:`[g/G, (g+1)/G)`; the last one
    includes 1. The paper prints these intervals with :math:`g = 1, \dots, G`, which drops the first bin and adds one
    above 1.

    Args:
        num_bins (int): G, equal-width bins over [0, 1], at least 1.

    Shape: probabilities (N, K) float, rows sum to 1; labels (N,) integer in [0, K); output in [0, 1].

    Source: the paper, appendix "Definition of ECE"; computed by torchmetrics, in float32. A confidence of exactly 1
        counts in the last bin; torchmetrics has a separate bin for it.
    """
    checked = checked_probabilities(probabilities).float()
    classes = torch.as_tensor(labels).cpu()  # where checked probabilities are
    _check_classes("labels", classes, checked.shape[1], len(checked))
    confidences, predictions = checked.max(dim=1)
    return _calibration_error(confidences, predictions.eq(classes), num_bins)


def summarize(logits: Tensor, labels: Tensor, num_classes: int) -> dict[str, float | list[float | None]]:
    """What a run reports of one evaluation pass, ready for JSON.

    Outputs: ``accuracy`` (percent), ``mean_class_accuracy`` (VisDA's: percent, over the classes present), ``ece``
    (15 bins, in [0, 1]), ``per_class_accuracy`` (K percents; None for a class that no label has).

    Shape: logits (N, K) float, finite, K being ``num_classes``; labels (N,) integer in [0, K).
    """
    if logits.ndim != 2 or logits.shape[0] == 0 or logits.shape[1] < 2:
        raise UserError(f"logits have shape {tuple(logits.shape)}", "give (N, K) with two or more classes")
    if not logits.isfinite().all():
        raise NotFinite("logits are not finite; the model has probably diverged", "try a lower learning rate")
    _check_classes("labels", labels, num_classes, len(logits))
    is_right = logits.argmax(dim=1).eq(labels)
    num_right = labels[is_right].bincount(minlength=num_classes).double()
    accuracies = 100 * num_right / labels.bincount(minlength=num_classes)
    confidences = logits.float().softmax(dim=1).amax(dim=1)
    return {
        "accuracy": 100 * float(is_right.double().mean()),
        "mean_class_accuracy": float(accuracies.nanmean()),
        "ece": _calibration_error(confidences, is_right, NUM_BINS),
        "per_class_accuracy": [None if math.isnan(value) else value for value in accuracies.tolist()],
    }


def _check_classes(name: str, classes: Tensor, num_classes: int, num_samples: int) -> None:
    are_integers = not classes.is_floating_point() and classes.dtype != torch.bool
    if classes.shape != (num_samples,) or num_samples == 0 or not are_integers:
        raise UserError(
            f"{name} have shape {tuple(classes.shape)} and dtype {classes.dtype}",
            f"give integer classes, one for each of {num_samples} samples",
        )
    lowest = int(classes.min())
    highest = int(classes.max())
    if lowest < 0 or highest >= num_classes:
        raise UserError(f"{name} range from {lowest} to {highest}, and must be within 0 to {num_classes - 1}")


def _calibration_error(confidences: Tensor, is_right: Tensor, num_bins: int) -> float:
    """The ECE of confidences (N,) float32, where the predictions are right or wrong, (N,). Certain ones lie in the last
    bin."""
    from torchmetrics.functional.classification import binary_calibration_error

    below_one = confidences.clamp(max=_BELOW_ONE)
    return float(binary_calibration_error(below_one, is_right.long(), num_bins, "l1", validate_args=False))
