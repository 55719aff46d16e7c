"""Rules that were tried against ``ancon-auto``, as methods for the variants of :mod:`benchmarks.left_out.grid`.

They are not part of the package. ``benchmarks/results/better_labels.md`` has the plan and the results.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from tllib_ancon import methods
from tllib_ancon.self_training.adaptive import AdaptiveSmoothing, WithAnConAuto
from tllib_ancon.self_training.ensemble import TemporalEnsemble
from tllib_ancon.self_training.neighbors import nearest
from tllib_ancon.self_training.pseudo_label import SelfTraining
from tllib_ancon.self_training.shot import information_maximization
from tllib_ancon.training.rate import PAIRS

NUM_NEIGHBOURS = 10
LARGEST_MASS = 3.0
"""Of a target, before these trials."""


class AnConAuto(WithAnConAuto, SelfTraining):
    """``ancon-auto`` without information maximisation."""


class EarlierSmoothing(AdaptiveSmoothing):
    """Class weights that raise the mass of a target up to 3, as in ``ancon-auto`` before these trials."""

    def _weighted(self, targets: Tensor) -> Tensor:
        tiny = torch.finfo(targets.dtype).tiny
        weighted = targets * self.relative_prior / (len(self.shares) * self.shares).clamp(min=tiny)
        mass = weighted.sum(1, keepdim=True)
        return weighted * (mass.clamp(max=LARGEST_MASS) / mass.clamp(min=tiny))


class EarlierAnConAuto(WithAnConAuto, SelfTraining):
    """``ancon-auto`` before these trials."""

    smoothing: ClassVar[type[AdaptiveSmoothing]] = EarlierSmoothing

    def __init__(self, **sizes_and_options: Any):
        super().__init__(**sizes_and_options)
        options = self.ensemble_options()
        self.adaptive = self.smoothing(
            self.num_rows, self.num_classes, self.class_prior, self.prior_shrinkage, **options
        )


class RunningShares(EarlierAnConAuto):
    """L: information maximisation of both views together towards the running class shares π, added to the loss."""

    def forward(
        self, indices: Tensor, logits: Tensor, features: Tensor, second_view: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        loss = super().forward(indices, logits, features, second_view)
        both_views = logits if second_view is None else torch.cat([logits, second_view[0]])
        return loss + information_maximization(both_views, self.frequencies())

    def frequencies(self) -> Tensor:
        """The class frequencies that the mean prediction is drawn towards: π after the update of this step."""
        return self.adaptive.shares


class EstimatedPrior(RunningShares):
    """I: the same towards the estimated prior ρ, which is shrunk towards equal classes."""

    def frequencies(self) -> Tensor:
        return self.prior


class NeighbourEnsemble(TemporalEnsemble):
    """Votes of a sample and of its nearest samples, by features of length 1 as of their last visit."""

    bank: Tensor
    neighbours: Tensor

    def __init__(self, num_samples: int, num_classes: int, feature_dim: int, **options: Any):
        super().__init__(num_samples, num_classes, **options)
        self.register_buffer("bank", torch.zeros(num_samples, feature_dim))
        self.register_buffer("neighbours", torch.zeros(0, 0, dtype=torch.int64), persistent=False)

    def visit(self, rows: Tensor, features: Tensor) -> None:
        """Store the features (B, D) of a batch, then find the neighbours of each row."""
        features = normalize(features.detach().float())
        self.bank[rows] = features
        self.neighbours = nearest(features, self.bank, min(NUM_NEIGHBOURS, len(self.bank) - 1), rows)

    def forward(self, indices: Tensor, logits: Tensor, probabilities: Tensor | None = None) -> Tensor:
        votes_of_neighbours = self.votes(self.neighbours.flatten()).view(*self.neighbours.shape, -1).sum(1)
        votes: Tensor = super().forward(indices, logits, probabilities)
        return votes + votes_of_neighbours


class NeighbourVotes(EarlierAnConAuto):
    """Votes over ten neighbours in place of the sample's own: t = (E_1(ŷ) + v + Σ_N v_j) / (1 + Q + Σ_N Q_j)."""

    def __init__(self, **sizes_and_options: Any):
        super().__init__(**sizes_and_options)
        sizes = self.num_rows, self.num_classes, self.feature_sizes[2]
        self.neighbour_ensemble = NeighbourEnsemble(*sizes, **self.ensemble_options())
        self.adaptive.ensemble = self.neighbour_ensemble

    def forward(
        self, indices: Tensor, logits: Tensor, features: Tensor, second_view: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        both_views = features if second_view is None else normalize(features) + normalize(second_view[1])
        self.neighbour_ensemble.visit(self.rows(indices), both_views)
        return super().forward(indices, logits, features, second_view)


class RunningSharesAndNeighbours(NeighbourVotes, RunningShares):
    """L with votes over neighbours."""


class EstimatedPriorAndNeighbours(NeighbourVotes, EstimatedPrior):
    """I with votes over neighbours."""


class RunningSharesWithoutGain(RunningShares):
    """L with class weights that raise no mass above 1."""

    smoothing = AdaptiveSmoothing


class RunningSharesAtRateOfLabels(AnConAuto):
    """L at the rate of the loss without information maximisation: the first calls, which fit the rate, leave it out."""

    calls = 0

    def forward(
        self, indices: Tensor, logits: Tensor, features: Tensor, second_view: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        loss = super().forward(indices, logits, features, second_view)
        self.calls += 1
        if self.calls <= PAIRS:
            return loss
        both_views = logits if second_view is None else torch.cat([logits, second_view[0]])
        return loss + information_maximization(both_views, self.frequencies())

    def frequencies(self) -> Tensor:
        """π, as in :class:`RunningShares`."""
        return self.adaptive.shares


class EstimatedPriorAtRateOfLabels(RunningSharesAtRateOfLabels):
    """I at the same rate."""

    def frequencies(self) -> Tensor:
        return self.prior


class RunningSharesOfTwoViews(RunningSharesAtRateOfLabels):
    """L at that rate where training has two views; ``ancon-auto`` elsewhere."""

    def forward(
        self, indices: Tensor, logits: Tensor, features: Tensor, second_view: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        if second_view is None:
            return AnConAuto.forward(self, indices, logits, features)
        return super().forward(indices, logits, features, second_view)


class RunningSharesOfTwoViewsAtWholeRate(AnConAuto):
    """L where training has two views; ``ancon-auto`` elsewhere. The fitted rate counts the whole loss."""

    def forward(
        self, indices: Tensor, logits: Tensor, features: Tensor, second_view: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        loss = super().forward(indices, logits, features, second_view)
        if second_view is None:
            return loss
        return loss + information_maximization(torch.cat([logits, second_view[0]]), self.adaptive.shares)


RULES: Mapping[str, type[methods.Method]] = {
    "rule-running-shares": RunningShares,
    "rule-estimated-prior": EstimatedPrior,
    "rule-neighbours": NeighbourVotes,
    "rule-running-shares-neighbours": RunningSharesAndNeighbours,
    "rule-estimated-prior-neighbours": EstimatedPriorAndNeighbours,
    "rule-earlier": EarlierAnConAuto,
    "rule-running-shares-without-gain": RunningSharesWithoutGain,
    "rule-running-shares-label-rate": RunningSharesAtRateOfLabels,
    "rule-estimated-prior-label-rate": EstimatedPriorAtRateOfLabels,
    "rule-running-shares-two-views": RunningSharesOfTwoViews,
    "rule-running-shares-two-views-whole-rate": RunningSharesOfTwoViewsAtWholeRate,
}


def register() -> None:
    """Make the rules known by their names in this process."""
    for name, rule in RULES.items():
        methods.register(name)(rule)
