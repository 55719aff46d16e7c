"""Evaluation with labels: accuracy, per-class accuracy and calibration (Section 4.3.3).

Accuracies are in percent. The expected calibration error (ECE) is in [0, 1].
"""

import math

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tllib_ancon.config.arguments import validated
from tllib_ancon.config.types import Number
from tllib_ancon.measures.selection import checked_probabilities
from tllib_ancon.runtime.errors import UserError

NUM_BINS = 15
"""Equal-width confidence bins over [0, 1]. The paper does not state its number."""


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

    Raises:
        UserError: other shapes, no sample, or labels out of range

    Source: the paper, appendix "Definition of ECE". The edges of the bins are those of float32.
    """
    checked = checked_probabilities(probabilities).float()
    classes = torch.as_tensor(labels).cpu()  # where checked probabilities are
    are_integers = not classes.is_floating_point() and classes.dtype != torch.bool
    if classes.shape != checked.shape[:1] or not are_integers:
        raise UserError(
            f"labels have shape {tuple(classes.shape)} and dtype {classes.dtype}",
            f"give integer classes, one for each of {len(checked)} samples",
        )
    lowest = int(classes.min())
    highest = int(classes.max())
    last = checked.shape[1] - 1
    if lowest < 0 or highest > last:
        raise UserError(f"labels range from {lowest} to {highest}, and must be within 0 to {last}")
    confidences, predictions = checked.max(dim=1)
    return _calibration_error(confidences, predictions.eq(classes), num_bins)


def summarize(logits: Tensor, labels: Tensor, num_classes: int) -> dict[str, float | list[float | None]]:
    """What a run reports of one evaluation pass, ready for JSON.

    Outputs: ``accuracy`` (percent), ``mean_class_accuracy`` (VisDA's: percent, over the classes present), ``ece``
    (15 bins, in [0, 1]), ``per_class_accuracy`` (K percents; None for a class that no label has).

    Shape: logits (N, K) float, finite, K being ``num_classes``; labels (N,) integer in [0, K).
    """
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


def _calibration_error(confidences: Tensor, is_right: Tensor, num_bins: int) -> float:
    """The ECE of confidences (N,) float32, where the predictions are right or wrong, (N,)."""
    edges = torch.linspace(0, 1, num_bins + 1)
    bins = torch.bucketize(confidences, edges[1:-1], right=True)
    sums_of_gaps = bins.bincount(confidences.double() - is_right.double())
    return float(sums_of_gaps.abs().sum()) / len(confidences)
