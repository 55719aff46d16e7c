"""Collapse of an adaptation: few classes are predicted and InfoMax is low, compared with the model before training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tllib_ancon.measures import selection
from tllib_ancon.models.batch_norm import has_statistics
from tllib_ancon.runtime.errors import named
from tllib_ancon.runtime.notes import Note
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


def diversity_before_training(metrics: Sequence[Metrics]) -> Diversity:
    """Diversity of the model whose batch-norm statistics are mixed, or of the source model."""
    first_epoch = metrics[1]
    if "infomax_before" in first_epoch:
        return Diversity(first_epoch["effective_classes_before"], first_epoch["infomax_before"])
    return Diversity(metrics[0]["effective_classes"], metrics[0]["infomax"])


class CollapseGuard:
    """Puts a network back to its best model after a collapse: the one with the highest InfoMax, before training or
    after an epoch.

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
        self.best_weights: State = {}
        self.best_infomax = -math.inf
        self.best_epoch = 0

    def remember(self, epoch: int, infomax: float) -> None:
        """Keep the model after an epoch, or before the first one, if it is the best so far."""
        if self.is_needed and infomax > self.best_infomax:
            self.best_weights = copy_to_cpu(self.network.state_dict())
            self.best_infomax = infomax
            self.best_epoch = epoch

    def undo_collapse(self, metrics: Sequence[Metrics]) -> Diversity | None:
        """Restore the best model if the last recorded epoch has collapsed, and return the epoch's diversity."""
        epoch = metrics[-1]["epoch"]
        if epoch == 0 or not self.is_needed:
            return None
        after = Diversity(metrics[-1]["effective_classes"], metrics[-1]["infomax"])
        if has_collapsed(after, diversity_before_training(metrics)):
            self.network.load_state_dict(self.best_weights)
            return after
        self.remember(epoch, after.infomax)
        return None

    def note(self, after: Diversity, metrics: Sequence[Metrics], padding: int) -> Note:
        """Describe the collapse of the last recorded epoch.

        Args:
            after: diversity of this epoch
            metrics: of all epochs
            padding: pixels by which training shifts images
        """
        before = diversity_before_training(metrics)
        model = f"of epoch {self.best_epoch}" if self.best_epoch else "before training"
        return Note(
            "collapse",
            f"epoch {metrics[-1]['epoch']} collapsed: the effective number of predicted classes fell from "
            f"{before.effective_classes:.1f} before training to {after.effective_classes:.1f}, InfoMax from "
            f"{before.infomax:.2f} to {after.infomax:.2f}. Training ends with the model {model}, whose InfoMax of "
            f"{self.best_infomax:.2f} is the highest",
            setting="padding" if padding else "lr",
            action=f"{_remedy(metrics[1].get('batch_norm_share', 0.0), padding)} may prevent it",
            level="warning",
        )

    def state_dict(self) -> State:
        return {"weights": self.best_weights, "infomax": self.best_infomax, "epoch": self.best_epoch}

    def load_state_dict(self, state: State) -> None:
        self.best_weights = state["weights"]
        self.best_infomax = state["infomax"]
        self.best_epoch = state["epoch"]


def _remedy(mixing_weight: float, padding: int) -> str:
    if padding:
        return f"images that training does not shift ({named('padding', 0)})"
    lower_rate = f"a smaller {named('lr')}"
    if mixing_weight > 0:
        target = named("batch_norm", "target")
        return f"{target} in place of statistics mixed with weight {mixing_weight:.2f}, or {lower_rate},"
    return lower_rate


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
