"""Neighbourhood reciprocity clustering."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from tllib_ancon.config.arguments import validated
from tllib_ancon.config.types import Number, Share
from tllib_ancon.runtime import processes
from tllib_ancon.self_training.anchored import MIXED
from tllib_ancon.self_training.memory_bank import Neighborhood, NeighborMethod, NeighborVotes
from tllib_ancon.self_training.method import option_of
from tllib_ancon.self_training.registry import register

WEAK_AFFINITY = 0.1
CLAMP = (1e-4, 1 - 1e-4)
EPSILON = 1e-5


class NeighborhoodReciprocity(Neighborhood):
    r"""Pulls a prediction to those of its neighbours, most to those whose neighbour it is in turn.

    .. math::
        L = E_x\Big[Σ_{j ∈ N(x)} a_j D(s_j, f(x)) + 0.1 Σ_{j ∈ N(x)} Σ_{m ∈ E(j)} D(s_m, f(x))\Big]
            + Σ_k \bar f_k \log(\bar f_k + 10^{-5}),   D(s, f) = Σ_k s_k \log s_k - s_k f_k

    N(x) holds the nearest samples by cosine in a memory of all features, E(j) those of a neighbour, s the
    remembered predictions and :math:`\bar f` the mean prediction of the batch. The affinity a_j is 1 where x
    is in E(j) in turn, and 0.1 where it is not. The memory takes in the batch before the search. f and s are
    clamped to [1e-4, 1 - 1e-4], f also before its mean is taken.

    Anchors, AnCon's votes for x, replace s by 0.3 anchors + 0.7 s before it is clamped. They are the raw votes, as in
    AnCon's code, where a class with four saturates.

    Args:
        num_samples, num_classes (int): N images of the whole target set, K classes
        feature_dim (int): D, width of the features before the head
        neighbors (int): size of N(x), at most N - 1. Default: 5
        expanded_neighbors (int): size of E(j); likewise. Default: 5
        reciprocal (bool): False gives every neighbour the affinity 0.1, as AnCon's code does. Default: True
        anchor_weight (float): weight of the anchors in [0, 1]. Default: 0.3

    Inputs:
        - indices: (B,) int64 or int32 in [0, N)
        - features: (B, D) of any floating type; they get no gradient
        - logits: (B, K) of any floating type
        - anchors (optional): (B, K) votes of the batch's samples
        - predictions (optional): (B, K) logits whose softmax the memory stores. Default: ``logits``

    Outputs: float32 scalar loss

    Raises:
        UserError: also for a step before :meth:`initialize`

    Source: Yang et al., "Exploiting the Intrinsic Neighborhood Structure for Source-free Domain Adaptation",
    NeurIPS 2021, without the self-regularisation that its code leaves out; the clamps and the anchors are
    those of AnCon's code.
    """

    @validated
    def __init__(
        self,
        num_samples: Number,
        num_classes: Number,
        feature_dim: Number,
        neighbors: Number = 5,
        expanded_neighbors: Number = 5,
        reciprocal: bool = True,
        anchor_weight: Share = 0.3,
    ):
        super().__init__((num_samples, num_classes, feature_dim), anchor_weight)
        self.neighbors = neighbors
        self.expanded_neighbors = expanded_neighbors
        self.reciprocal = reciprocal

    def loss(self, indices: Tensor, predictions: Tensor, anchors: Tensor | None) -> Tensor:
        with torch.no_grad():
            near = self.nearest(indices, self.neighbors)
            expanded = self.nearest(near, self.expanded_neighbors)
            matches = (expanded == indices.view(-1, 1, 1)).sum(2).float()
            affinities = torch.where((matches > 0) & self.reciprocal, matches, WEAK_AFFINITY)
            weak = torch.full_like(affinities[:, :1], WEAK_AFFINITY)
            near_scores = self.remembered(near, anchors).clamp(*CLAMP)
            expanded_scores = self.remembered(expanded.flatten(1), anchors).clamp(*CLAMP)
        clamped = predictions.clamp(*CLAMP)
        near_divergence = _divergence(near_scores, clamped, affinities)
        expanded_divergence = _divergence(expanded_scores, clamped, weak)
        mean = processes.mean(clamped.mean(0))
        negentropy_of_mean = (mean * (mean + EPSILON).log()).sum()
        return near_divergence + expanded_divergence + negentropy_of_mean


def _divergence(scores: Tensor, predictions: Tensor, weights: Tensor) -> Tensor:
    """Batch mean of Σ_j w_j D(s_j, f) for s (B, M, K), f (B, K) and w (B, M)."""
    weighted = weights.unsqueeze(2) * scores
    negentropy = (weighted * scores.log()).sum((1, 2))
    return (negentropy - (weighted.sum(1) * predictions).sum(1)).mean()


@register("nrc", composes=("elr",))
class _NRC(NeighborMethod):
    """Neighbourhood reciprocity clustering (Yang et al., 2021)."""

    neighbors = option_of(
        NeighborhoodReciprocity,
        "neighbors",
        help="nearest neighbours of a sample; 5 for NRC, 3 for AaD (5 on VisDA2017)",
    )
    expanded_neighbors = option_of(
        NeighborhoodReciprocity, "expanded_neighbors", help="nearest neighbours of each neighbour, for NRC"
    )
    reciprocal = option_of(
        NeighborhoodReciprocity,
        "reciprocal",
        help="NRC: weigh mutual neighbours by their count; off: all 0.1, as the authors' code",
    )

    def __init__(self, **sizes_and_options: Any):
        super().__init__(**sizes_and_options)
        self.neighborhood = NeighborhoodReciprocity(
            *self.feature_sizes, self.neighbors, self.expanded_neighbors, self.reciprocal
        )


@register("nrc+ancon")
class _NRCWithAnCon(NeighborVotes, _NRC):
    """NRC with the fixed weight λ of the votes."""


@register("nrc+ancon-auto")
class _NRCWithAnConAuto(_NRCWithAnCon):
    """NRC with votes, by batch-norm statistics of source and target."""

    training_defaults: ClassVar = MIXED
