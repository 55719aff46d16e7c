"""Collapse of an adaptation: few classes are predicted and InfoMax is low, compared with the model before training."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tllib_ancon.measures import selection

REMAINING = 0.9
"""Fraction of a number below which it has fallen. See ``benchmarks/results/harm.md``."""


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


def has_collapsed(after: Diversity, before: Diversity) -> bool:
    r"""Whether both numbers have fallen below nine tenths of those before training.

    Fewer classes alone are no collapse: where classes are missing in the target, adaptation predicts them less often,
    and InfoMax rises. A lower InfoMax alone is none either: predictions may only be less certain. The agreement of two
    views does not serve, because a model that predicts one class agrees with itself.

    Args:
        after: of the model after an epoch
        before: of the model that training started from, on the same images
    """
    return all(later < REMAINING * earlier for later, earlier in zip(after, before, strict=True))
