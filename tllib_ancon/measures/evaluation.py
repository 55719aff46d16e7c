"""Evaluation with labels: accuracy, per-class accuracy and calibration (Section 4.3.3).

Accuracies are in percent. The expected calibration error (ECE) is in [0, 1]. Every function raises a
:class:`~tllib_ancon.UserError` for other shapes than it says, for no sample, and for labels out of range.
"""

import math
from typing import NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tllib_ancon.config.arguments import validated
from tllib_ancon.config.types import Number
from tllib_ancon.measures.selection import checked_probabilities
from tllib_ancon.runtime.errors import NotFinite, UserError

NUM_BINS = 15
"""Equal-width confidence bins over [0, 1]. The paper does not state its number."""

BELOW_ONE = 1 - 2**-24
"""The float32 below 1."""

ROWS_AT_ONCE = 512
"""Rows of logits that :func:`summarize` computes with at a time."""


def accuracy(outputs: Tensor, labels: Tensor) -> float:
    """Share of samples whose largest output is at the label, in percent.

    Shape: outputs (N, K) float, finite probabilities or logits; labels (N,) integer in [0, K); output in [0, 100].
    """
    predictions = _checked_predictions(outputs)
    _check_classes("labels", labels, outputs.shape[1], len(outputs))
    return 100 * float(predictions.eq(labels).double().mean())


def confusion_matrix(predictions: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Counts of samples by label (row) and prediction (column).

    Shape: predictions, labels (N,) integer in [0, K), K being ``num_classes``; output (K, K) int64.
    """
    from torchmetrics.functional.classification import multiclass_confusion_matrix

    _check_classes("predictions", predictions, num_classes, len(predictions))
    _check_classes("labels", labels, num_classes, len(predictions))
    return multiclass_confusion_matrix(predictions, labels, num_classes, validate_args=False)


def per_class_accuracy(predictions: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Accuracy of each class in percent; NaN for a class that no label has.

    Shape: as of :func:`confusion_matrix`; output (K,) float64 in [0, 100] or NaN.
    """
    _check_classes("predictions", predictions, num_classes, len(predictions))
    _check_classes("labels", labels, num_classes, len(predictions))
    num_right = labels[predictions.eq(labels)].bincount(minlength=num_classes).double()
    return 100 * num_right / labels.bincount(minlength=num_classes)


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
    confidences, is_right = _confidences_and_hits(probabilities, labels, num_bins)
    return _calibration_error(confidences, is_right, num_bins)


class _ReliabilityDiagram(NamedTuple):
    """Accuracy against confidence by bin; all tensors float64 on the host except ``counts`` (int64).

    Attributes:
        edges: (G + 1,) from 0 to 1; bin g is [edges[g], edges[g + 1]), the last one closed.
        counts: (G,) samples in each bin.
        accuracy: (G,) in [0, 1]; NaN where a bin is empty.
        confidence: (G,) mean confidence in [0, 1]; NaN where a bin is empty.
    """

    edges: Tensor
    counts: Tensor
    accuracy: Tensor
    confidence: Tensor


@validated
def reliability_diagram_data(probabilities: Tensor, labels: Tensor, num_bins: Number = NUM_BINS) -> _ReliabilityDiagram:
    """What a reliability diagram shows, with the bins and the inputs of :func:`expected_calibration_error`."""
    confidences, is_right = _confidences_and_hits(probabilities.cpu(), labels.cpu(), num_bins)
    edges = torch.linspace(0, 1, num_bins + 1)
    bins = torch.bucketize(confidences, edges, right=True) - 1
    counts = bins.bincount(minlength=num_bins)
    accuracies = bins.bincount(weights=is_right.double(), minlength=num_bins) / counts
    mean_confidences = bins.bincount(weights=confidences.double(), minlength=num_bins) / counts
    return _ReliabilityDiagram(edges.double(), counts, accuracies, mean_confidences)


def summarize(logits: Tensor, labels: Tensor, num_classes: int) -> dict[str, float | list[float | None]]:
    """What a run reports of one evaluation pass, ready for JSON.

    Outputs: ``accuracy`` (percent), ``mean_class_accuracy`` (VisDA's: percent, over the classes present), ``ece``
    (15 bins, in [0, 1]), ``per_class_accuracy`` (K percents; None for a class that no label has).

    Shape: logits (N, K) float, finite, K being ``num_classes``; labels (N,) integer in [0, K). Memory beside them does
    not grow with K.
    """
    predictions = _checked_predictions(logits)
    accuracies = per_class_accuracy(predictions, labels, num_classes)
    is_right = predictions.eq(labels)
    confidences = _confidences(logits).clamp(max=BELOW_ONE)
    return {
        "accuracy": 100 * float(is_right.double().mean()),
        "mean_class_accuracy": float(accuracies.nanmean()),
        "ece": _calibration_error(confidences, is_right, NUM_BINS),
        "per_class_accuracy": [None if math.isnan(value) else value for value in accuracies.tolist()],
    }


def _confidences(logits: Tensor) -> Tensor:
    """The largest probability of each row, (N,) float32."""
    confidences = torch.empty(len(logits), device=logits.device)  # small parts between large ones would keep these
    parts = torch.split(confidences, ROWS_AT_ONCE)
    for part, rows in zip(parts, torch.split(logits, ROWS_AT_ONCE), strict=True):
        torch.amax(rows.float().softmax(dim=1), dim=1, out=part)
    return confidences


def _checked_predictions(outputs: Tensor) -> Tensor:
    """The class of the largest output of each row, of finite outputs (N, K)."""
    if outputs.ndim != 2 or outputs.shape[0] == 0 or outputs.shape[1] < 2:
        raise UserError(f"outputs have shape {tuple(outputs.shape)}", "give (N, K) with two or more classes")
    if not all(rows.isfinite().all() for rows in torch.split(outputs, ROWS_AT_ONCE)):
        raise NotFinite("outputs are not finite; the model has probably diverged", "try a lower learning rate")
    return outputs.argmax(dim=1)


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


def _confidences_and_hits(
    probabilities: ArrayLike | Tensor, labels: ArrayLike | Tensor, num_bins: int
) -> tuple[Tensor, Tensor]:
    """Confidences (N,) float32, below 1 so that certain ones lie in the last bin, and where predictions are right."""
    checked = checked_probabilities(probabilities).float()
    classes = torch.as_tensor(labels)
    _check_classes("labels", classes, checked.shape[1], len(checked))
    confidences, predictions = checked.clamp(max=BELOW_ONE).max(dim=1)
    return confidences, predictions.eq(classes)


def _calibration_error(confidences: Tensor, is_right: Tensor, num_bins: int) -> float:
    """The ECE of confidences (N,) float32, where the predictions are right or wrong, (N,)."""
    from torchmetrics.functional.classification import binary_calibration_error

    return float(binary_calibration_error(confidences, is_right.long(), num_bins, "l1", validate_args=False))
