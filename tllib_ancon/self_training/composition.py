"""One adaptation step, composed of parts, and the parts that are a few lines around a function of their own room."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.self_training.aad import AttractingDispersing
from tllib_ancon.self_training.belief_matching import belief_matching_loss
from tllib_ancon.self_training.ensemble import TemporalEnsemble
from tllib_ancon.self_training.gce import generalized_cross_entropy
from tllib_ancon.self_training.nrc import NeighborhoodReciprocity
from tllib_ancon.self_training.processes import Shard
from tllib_ancon.self_training.pseudo_label import OneHotPseudoLabel, cross_entropy
from tllib_ancon.self_training.shot import information_maximization


class Method(nn.Module):
    """One adaptation step as a composition of parts.

    Args:
        objective: ``(indices, logits, features, targets) -> scalar``
        refiner: ``(indices, logits, pseudo_labels, probabilities) -> (B, K)`` targets; one-hot pseudo-labels by default
        regularizer: ``(indices, logits) -> scalar`` added to the objective, or None
        labeler: ``(indices) -> (B,)`` pseudo-labels that replace the largest logit's, or None
        confidence: ``(logits, features) -> (B, K)`` predictive distribution for the refiner, or None: the softmax
        shard: of many processes, the samples that this one visits; by default all

    Indices are positions in the whole target set, and the objective and the labeler get them. The refiner and the
    regulariser keep state of the shard alone, and get rows of it.

    A part that needs the whole target set has a method ``initialize(indices, features, logits)`` and an attribute
    ``refresh``: ``"start"`` (once, before the first step) or ``"epoch"`` (before each epoch). The loop asks
    :meth:`needs_pass` and hands one evaluation pass to :meth:`initialize`, for whoever asked.

    Inputs: indices (B,), logits (B, K), features (B, D)

    Outputs: scalar loss
    """

    def __init__(
        self,
        objective: nn.Module,
        refiner: nn.Module | None = None,
        regularizer: nn.Module | None = None,
        labeler: nn.Module | None = None,
        confidence: nn.Module | None = None,
        shard: Shard | None = None,
    ):
        super().__init__()
        self.objective = objective
        self.refiner = OneHotPseudoLabel() if refiner is None else refiner
        self.regularizer = regularizer
        self.labeler = labeler
        self.confidence = confidence
        self.shard = shard

    def forward(self, indices: Tensor, logits: Tensor, features: Tensor) -> Tensor:
        rows = self._rows(indices)
        labels = None if self.labeler is None else self.labeler(indices)
        probabilities = None if self.confidence is None else self.confidence(logits, features)
        targets = self.refiner(rows, logits.detach(), labels, probabilities)
        loss = self.objective(indices, logits, features, targets)
        if self.regularizer is not None:
            loss = loss + self.regularizer(rows, logits)
        return loss

    def needs_pass(self, epoch: int) -> bool:
        """Whether any part wants an evaluation pass before this epoch (counted from 0)."""
        return bool(self._parts_to_initialize(epoch))

    def initialize(self, epoch: int, indices: Tensor, features: Tensor, logits: Tensor) -> None:
        """Hand one evaluation pass, (N,), (N, D), (N, K), to the parts that want it before this epoch."""
        for part in self._parts_to_initialize(epoch):
            part.initialize(indices, features, logits)

    def diagnostics(self) -> dict[str, Tensor]:
        """Scalars of the last step, on its device: AnCon's threshold δ and the share of predictions that voted."""
        ensemble = self._ensemble()
        return {} if ensemble is None else {"threshold": ensemble.threshold, "votes": ensemble.vote_share}

    def votes(self, indices: Tensor) -> Tensor | None:
        """f̄ of these samples before normalisation, (B, K) float32; None if no part keeps an ensemble."""
        ensemble = self._ensemble()
        return None if ensemble is None else ensemble.votes(self._rows(indices))

    def _rows(self, indices: Tensor) -> Tensor:
        return indices if self.shard is None else self.shard.rows(indices)

    def _ensemble(self) -> TemporalEnsemble | None:
        return next((part for part in self.modules() if isinstance(part, TemporalEnsemble)), None)

    def _parts_to_initialize(self, epoch: int) -> list[Any]:
        due = {"epoch"} if epoch else {"epoch", "start"}
        return [part for part in self.modules() if getattr(part, "refresh", None) in due]


class CrossEntropy(nn.Module):
    """:func:`~tllib_ancon.self_training.pseudo_label.cross_entropy` as an objective."""

    def forward(self, indices: Tensor, logits: Tensor, features: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(logits, targets)


class BeliefMatching(nn.Module):
    """:func:`~tllib_ancon.self_training.belief_matching.belief_matching_loss` as an objective."""

    def __init__(self, coefficient: float = 0.001):
        super().__init__()
        self.coefficient = coefficient

    def forward(self, indices: Tensor, logits: Tensor, features: Tensor, targets: Tensor) -> Tensor:
        return belief_matching_loss(logits, targets, self.coefficient)


class GeneralizedCrossEntropy(nn.Module):
    """:func:`~tllib_ancon.self_training.gce.generalized_cross_entropy` as an objective."""

    def __init__(self, q: float = 0.8):
        super().__init__()
        self.q = q

    def forward(self, indices: Tensor, logits: Tensor, features: Tensor, targets: Tensor) -> Tensor:
        return generalized_cross_entropy(logits, targets, q=self.q)


class Neighborhood(nn.Module):
    """NRC or AaD as an objective: what the refiner gives, if anything, anchors the neighbours' predictions."""

    refresh = "start"

    def __init__(self, neighborhood: NeighborhoodReciprocity | AttractingDispersing):
        super().__init__()
        self.neighborhood = neighborhood

    def initialize(self, indices: Tensor, features: Tensor, logits: Tensor) -> None:
        self.neighborhood.initialize(indices, features, logits)

    def forward(self, indices: Tensor, logits: Tensor, features: Tensor, targets: Tensor | None) -> Tensor:
        return self.neighborhood(indices, features, logits, anchors=targets)


class InformationMaximization(nn.Module):
    """SHOT's objective: information maximisation plus ``coefficient`` times the cross-entropy (0: SHOT-IM)."""

    def __init__(self, coefficient: float):
        super().__init__()
        self.coefficient = coefficient

    def forward(self, indices: Tensor, logits: Tensor, features: Tensor, targets: Tensor) -> Tensor:
        loss = information_maximization(logits)
        return loss + self.coefficient * cross_entropy(logits, targets) if self.coefficient else loss


class NoPseudoLabel(nn.Module):
    """The refiner of objectives that use no pseudo-label."""

    def forward(
        self,
        indices: Tensor,
        logits: Tensor,
        pseudo_labels: Tensor | None = None,
        probabilities: Tensor | None = None,
    ) -> None:
        return None


class EnsembleAnchor(nn.Module):
    """The refiner of neighbourhood objectives: f̄ itself, which they mix with the neighbours' predictions."""

    def __init__(self, ensemble: nn.Module):
        super().__init__()
        self.ensemble = ensemble

    @torch.no_grad()
    def forward(
        self,
        indices: Tensor,
        logits: Tensor,
        pseudo_labels: Tensor | None = None,
        probabilities: Tensor | None = None,
    ) -> Tensor:
        return self.ensemble(indices, logits, probabilities)
