"""Neighbourhood reciprocity clustering."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tllib_ancon.self_training import processes
from tllib_ancon.self_training.checks import check_features, check_visit, choice, number
from tllib_ancon.self_training.memory_bank import MIXINGS, MemoryBank, with_anchors
from tllib_ancon.self_training.neighbors import MEMORY_BUDGET, SEARCHES, available_neighbors

WEAK_AFFINITY = 0.1
SMALLEST_PROBABILITY = 1e-4
EPSILON = 1e-5


class NeighborhoodReciprocity(nn.Module):
    r"""Pulls a prediction to those of its neighbours, most to those whose neighbour it is in turn.

    .. math::
        L = E_x\Big[Σ_{j ∈ N(x)} a_j D(s_j, f(x)) + 0.1 Σ_{j ∈ N(x)} Σ_{m ∈ E(j)} D(s_m, f(x))\Big]
            + Σ_k \bar f_k \log(\bar f_k + 10^{-5}),   D(s, f) = Σ_k s_k \log s_k - s_k f_k

    N(x) holds the nearest samples by cosine in a memory of all features, E(j) those of a neighbour, s the
    remembered predictions and :math:`\bar f` the mean prediction of the batch. The affinity a_j is 1 where x
    is in E(j) in turn, and 0.1 where it is not. The memory takes in the batch before the search. f and s are
    clamped to [1e-4, 1 - 1e-4], f also before its mean is taken.

    Anchors, AnCon's votes for x, replace s by 0.3 anchors + 0.7 s before it is clamped.

    Args:
        num_samples (int): N, images of the whole target set
        num_classes (int): K
        feature_dim (int): D, width of the features before the head
        neighbors (int): size of N(x); clamped to N - 1 with a warning. Default: 5
        expanded_neighbors (int): size of E(j); likewise. Default: 5
        reciprocal (bool): False gives every neighbour the affinity 0.1, as AnCon's code does. Default: True
        mixing (str): ``"authors"``: the raw votes, as in AnCon's code, where a class with four saturates;
            ``"normalized"``: their distribution, and a sample without a vote keeps s; ``"adaptive"``: s counts as one
            more vote, which gives the votes' distribution the weight Q(x) / (1 + Q(x)), with Q(x) the sample's votes,
            and leaves ``anchor_weight`` unused. Default: ``"authors"``
        anchor_weight (float): weight of the anchors in [0, 1]. Default: 0.3
        search (str): ``"exact"`` or ``"cached"``, an approximation many times faster; see
            :class:`~tllib_ancon.self_training.neighbors.CachedSearch`. Default: ``"exact"``
        memory_budget (int): bytes that the search's inner products may take at a time. Default: 256 MiB

    Inputs:
        - indices: (B,) int64 or int32 in [0, N)
        - features: (B, D) of any floating type; they get no gradient
        - logits: (B, K) of any floating type
        - anchors (optional): (B, K) votes of the batch's samples

    Outputs: float32 scalar loss

    Raises:
        UserError: a step before :meth:`initialize`, shapes that do not fit, a parameter out of range, an
            unknown name

    Source: Yang et al., "Exploiting the Intrinsic Neighborhood Structure for Source-free Domain Adaptation",
    NeurIPS 2021, without the self-regularisation that its code leaves out; the clamps and the anchors are
    those of AnCon's code.
    """

    refresh = "start"

    def __init__(
        self,
        num_samples: int,
        num_classes: int,
        feature_dim: int,
        neighbors: int = 5,
        expanded_neighbors: int = 5,
        reciprocal: bool = True,
        mixing: str = "authors",
        anchor_weight: float = 0.3,
        search: str = "exact",
        memory_budget: int = MEMORY_BUDGET,
    ):
        super().__init__()
        self.mixing = choice("mixing", mixing, MIXINGS)
        self.anchor_weight = number("anchor_weight", anchor_weight, at_least=0, at_most=1)
        self.memory = MemoryBank(num_samples, num_classes, feature_dim)
        self.search = SEARCHES[choice("search", search, SEARCHES)](
            num_samples,
            feature_dim,
            available_neighbors("neighbors", neighbors, num_samples),
            available_neighbors("expanded_neighbors", expanded_neighbors, num_samples),
            memory_budget,
        )
        self.reciprocal = reciprocal

    def initialize(self, indices: Tensor, features: Tensor, logits: Tensor) -> None:
        """Fill the memory from one evaluation pass, (M,), (M, D), (M, K), that holds each sample."""
        self.memory.initialize(indices, features, logits)
        self.search.initialize(self.memory.features)

    def forward(self, indices: Tensor, features: Tensor, logits: Tensor, anchors: Tensor | None = None) -> Tensor:
        check_visit(indices, logits, *self.memory.scores.shape)
        check_features(features, len(logits), self.memory.features.shape[1])
        probabilities = logits.float().softmax(1)
        with torch.no_grad():
            indices = indices.to(logits.device, non_blocking=True)
            self.memory.update(indices, features, probabilities)
            near, expanded = self.search(indices, self.memory.features)
            affinities = self._affinities(indices, near, expanded)
            weak = torch.full_like(affinities[:, :1], WEAK_AFFINITY)
            near_scores = self._scores(near, anchors)
            expanded_scores = self._scores(expanded.flatten(1), anchors)
        predictions = probabilities.clamp(SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)
        mean = processes.mean(predictions.mean(0))
        return (
            _divergence(near_scores, predictions, affinities)
            + _divergence(expanded_scores, predictions, weak)
            + (mean * (mean + EPSILON).log()).sum()
        )

    def _affinities(self, indices: Tensor, near: Tensor, expanded: Tensor) -> Tensor:
        matches = (expanded == indices.view(-1, 1, 1)).sum(2).float()
        return torch.where((matches > 0) & self.reciprocal, matches, WEAK_AFFINITY)

    def _scores(self, rows: Tensor, anchors: Tensor | None) -> Tensor:
        scores = with_anchors(self.memory.scores[rows], anchors, self.mixing, self.anchor_weight)
        return scores.clamp(SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)


def _divergence(scores: Tensor, predictions: Tensor, weights: Tensor) -> Tensor:
    """Batch mean of Σ_j w_j D(s_j, f) for s (B, M, K), f (B, K) and w (B, M)."""
    weighted = weights.unsqueeze(2) * scores
    negentropy = (weighted * scores.log()).sum((1, 2))
    return (negentropy - (weighted.sum(1) * predictions).sum(1)).mean()
