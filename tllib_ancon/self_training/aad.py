"""Attracting and dispersing."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tllib_ancon.errors import UserError
from tllib_ancon.self_training import processes
from tllib_ancon.self_training.checks import check_features, check_visit, choice, number
from tllib_ancon.self_training.memory_bank import MIXINGS, MemoryBank, with_anchors
from tllib_ancon.self_training.neighbors import MEMORY_BUDGET, available_neighbors, nearest


class AttractingDispersing(nn.Module):
    r"""Attracts a prediction to those of its neighbours and disperses it from the rest of the batch.

    .. math::
        L = E_x\Big[-Σ_{j ∈ N(x)} <f(x), s_j> + α Σ_{x' ≠ x} <f(x), f(x')>\Big],   α = (1 + 10 t / I)^{-β}

    N(x) holds the nearest samples by cosine in a memory of all features, s the remembered predictions; x'
    runs over the batch; t counts the steps before this one, of I. The memory takes in the batch before the
    search. The official code's value is smaller by the entropies of s, a constant.

    Anchors f̄, AnCon's votes, replace s by 0.3 f̄ / Σ_k f̄_k + 0.7 s wherever a sample has votes.

    Args:
        num_samples (int): N, images of the whole target set
        num_classes (int): K
        feature_dim (int): D, width of the features before the head
        neighbors (int): size of N(x); clamped to N - 1 with a warning. Default: 3, the official code's for OfficeHome
            and Office-31; 5 for VisDA
        beta (float): β, at least 0; 0 keeps α = 1. Default: 0, the official code's for OfficeHome; 1 for Office-31, 5
            for VisDA
        total_steps (int): I, steps of the whole training; needed unless β = 0. Later steps count as the last.
        anchor_weight (float): weight of f̄ in [0, 1]. Default: 0.3
        mixing (str): how f̄ enters, as in :class:`~tllib_ancon.self_training.NeighborhoodReciprocity`. Default:
            ``"normalized"``
        memory_budget (int): bytes that the search's inner products may take at a time. Default: 256 MiB

    Inputs:
        - indices: (B,) int64 or int32 in [0, N)
        - features: (B, D) of any floating type; they get no gradient
        - logits: (B, K) of any floating type
        - anchors (optional): (B, K) votes of the batch's samples

    Outputs: float32 scalar loss; one call is one step

    Raises:
        UserError: a step before :meth:`initialize`, shapes that do not fit, a parameter out of range

    Source: Yang et al., "Attracting and Dispersing: A Simple Approach for Source-free Domain Adaptation",
    NeurIPS 2022.
    """

    refresh = "start"
    step: Tensor

    def __init__(
        self,
        num_samples: int,
        num_classes: int,
        feature_dim: int,
        neighbors: int = 3,
        beta: float = 0.0,
        total_steps: int | None = None,
        anchor_weight: float = 0.3,
        mixing: str = "normalized",
        memory_budget: int = MEMORY_BUDGET,
    ):
        super().__init__()
        self.beta = number("beta", beta, at_least=0)
        if beta and (total_steps is None or total_steps < 1):
            raise UserError(
                f"AaD's `total_steps={total_steps}`: dispersion decays over the whole training, so pass its number of "
                "steps, or `beta=0` for no decay"
            )
        self.mixing = choice("mixing", mixing, MIXINGS)
        self.anchor_weight = number("anchor_weight", anchor_weight, at_least=0, at_most=1)
        self.memory = MemoryBank(num_samples, num_classes, feature_dim)
        self.neighbors = available_neighbors("neighbors", neighbors, num_samples)
        self.total_steps = total_steps
        self.memory_budget = memory_budget
        self.register_buffer("step", torch.tensor(0))

    def initialize(self, indices: Tensor, features: Tensor, logits: Tensor) -> None:
        """Fill the memory from one evaluation pass, (M,), (M, D), (M, K), that holds each sample."""
        self.memory.initialize(indices, features, logits)

    @property
    def dispersion(self) -> Tensor:
        """α of the next step, a scalar."""
        progress = (self.step / (self.total_steps or 1)).clamp(max=1)
        return (1 + 10 * progress) ** -self.beta

    def forward(self, indices: Tensor, features: Tensor, logits: Tensor, anchors: Tensor | None = None) -> Tensor:
        check_visit(indices, logits, *self.memory.scores.shape)
        check_features(features, len(logits), self.memory.features.shape[1])
        predictions = logits.float().softmax(1)
        with torch.no_grad():
            indices = indices.to(logits.device, non_blocking=True)
            self.memory.update(indices, features, predictions)
            bank = self.memory.features
            near = nearest(bank[indices], bank, self.neighbors, indices, self.memory_budget)
            scores = with_anchors(self.memory.scores[near], anchors, self.mixing, self.anchor_weight)
        attraction = (scores.sum(1) * predictions).sum(1).mean()
        everyone_else = processes.total(predictions.sum(0)) - predictions
        dispersion = (predictions * everyone_else).sum(1).mean()
        loss = self.dispersion * dispersion - attraction
        self.step += 1
        return loss
