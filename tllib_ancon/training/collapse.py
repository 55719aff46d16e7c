"""Collapse of an adaptation: few classes are predicted and InfoMax is low, compared with the model before training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tllib_ancon.measures import selection
from tllib_ancon.models.batch_norm import has_statistics
from tllib_ancon.runtime.errors import named
from tllib_ancon.runtime.types import Metrics, State
from tllib_ancon.training.checkpointing import copy_to_cpu

REMAINING_CLASSES = 0.9
"""Fraction of the effective number of classes below which it has fallen."""

REMAINING_INFOMAX = 0.5
"""Fraction of InfoMax below which it has fallen. Of ten classes that a source model predicts equally often and with
certainty, four may be left: InfoMax then falls to log 4 / log 10 = 0.6 of its value without a collapse. See
``benchmarks/results/harm.md``."""


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


class Collapse(NamedTuple):
    """A fall of the diversity of the predictions.

    Attributes:
        before: diversity before training
        after: diversity after the epoch that ended in the collapse
        mixing_weight: weight α of the source's batch-norm statistics; 0 where none are mixed
    """

    before: Diversity
    after: Diversity
    mixing_weight: float = 0.0

    @classmethod
    def in_record(cls, metrics: Sequence[Metrics]) -> Collapse | None:
        """The collapse of the last recorded epoch, if it is one.

        Training begins with the model whose batch-norm statistics are mixed, or with the source model.
        """
        first_epoch = metrics[1]
        last_epoch = metrics[-1]
        before = Diversity(metrics[0]["effective_classes"], metrics[0]["infomax"])
        if "infomax_before" in first_epoch:
            before = Diversity(first_epoch["effective_classes_before"], first_epoch["infomax_before"])
        after = Diversity(last_epoch["effective_classes"], last_epoch["infomax"])
        if not has_collapsed(after, before):
            return None
        return cls(before, after, first_epoch.get("batch_norm_share", 0.0))

    def recorded(self) -> dict[str, float]:
        """What the record keeps of the epoch that is not handed out."""
        return {"effective_classes_collapsed": self.after.effective_classes, "infomax_collapsed": self.after.infomax}

    def line(self, epoch: int) -> str:
        advice = f"a smaller {named('lr')} may prevent it"
        if self.mixing_weight > 0:
            advice = (
                f"{named('batch_norm', 'target')} in place of statistics mixed with weight "
                f"{self.mixing_weight:.2f}, or a smaller "
                f"{named('lr')}, may prevent it"
            )
        return (
            f"epoch {epoch} collapsed: the effective number of predicted classes fell from "
            f"{self.before.effective_classes:.1f} before training to {self.after.effective_classes:.1f}, InfoMax from "
            f"{self.before.infomax:.2f} to {self.after.infomax:.2f}. Training ends with the model before this epoch; "
            f"{advice}"
        )


class CollapseGuard:
    """Puts a network back to the epoch before a collapse.

    Args:
        network: which is adapted
        trains: whether its weights change
        batch_norm: setting of its statistics. ``"target"`` switches the guard off: such a moving average lags behind
            the weights, and the diversity may fall for this reason alone
    """

    def __init__(self, network: nn.Module, trains: bool, batch_norm: str | float):
        self.network = network
        statistics_lag = batch_norm == "target" and has_statistics(network)
        self.is_needed = trains and not statistics_lag
        self.weights_before: State = {}

    def remember(self) -> None:
        """An epoch begins."""
        self.weights_before = copy_to_cpu(self.network.state_dict())

    def undo_collapse(self, metrics: Sequence[Metrics]) -> Collapse | None:
        """Undo the last recorded epoch if it has collapsed; returns the collapse."""
        if metrics[-1]["epoch"] == 0 or not self.is_needed:
            return None
        collapse = Collapse.in_record(metrics)
        if collapse is not None:
            self.network.load_state_dict(self.weights_before)
        return collapse


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
