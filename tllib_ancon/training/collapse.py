"""Collapse of an adaptation: few classes are predicted and InfoMax is low, compared with the model before training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tllib_ancon.measures import selection
from tllib_ancon.runtime.types import Metrics

REMAINING_CLASSES = 0.9
"""Fraction of the effective number of classes below which it has fallen."""

REMAINING_INFOMAX = 0.5
"""Fraction of InfoMax below which it has fallen. Of ten classes that a source model predicts equally often and with
certainty, four may be left: InfoMax then falls to log 4 / log 10 = 0.6 of its value without a collapse. See
``benchmarks/tried.md``."""


class Diversity(NamedTuple):
    """How diverse the predictions on a set of images are.

    Attributes:
        effective_classes: exp H(h), h the frequencies of the predicted classes: K if all are predicted equally often
        infomax: :func:`tllib_ancon.measures.selection.infomax`
    """

    effective_classes: float
    infomax: float

    @classmethod
    def of(cls, logits: Tensor) -> Diversity:
        """Diversity of predictions (N, K)."""
        frequencies = logits.argmax(1).bincount(minlength=logits.shape[1]).double() / len(logits)
        entropy = -torch.xlogy(frequencies, frequencies).sum()
        return cls(float(entropy.exp()), selection.infomax(logits.softmax(1)))


def diversity_before_training(metrics: Sequence[Metrics]) -> Diversity:
    """Diversity of the model whose batch-norm statistics are mixed, or of the source model."""
    first_epoch = metrics[1]
    if "infomax_before" in first_epoch:
        return Diversity(first_epoch["effective_classes_before"], first_epoch["infomax_before"])
    return Diversity(metrics[0]["effective_classes"], metrics[0]["infomax"])


def has_collapsed(after: Diversity, before: Diversity) -> bool:
    """Whether fewer classes are predicted than before training, and InfoMax is below half of its value.

    Fewer classes alone are no collapse: where classes are missing in the target, adaptation predicts them less often.
    A lower InfoMax alone is none either: predictions may only be less certain. The agreement of two views does not
    serve, because a model that predicts one class agrees with itself.

    Args:
        after: of the model after an epoch
        before: of the model that training started from, on the same images
    """
    predicts_fewer_classes = after.effective_classes < REMAINING_CLASSES * before.effective_classes
    return predicts_fewer_classes and after.infomax < REMAINING_INFOMAX * before.infomax
