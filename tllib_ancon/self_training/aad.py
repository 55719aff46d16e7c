"""Attracting and dispersing."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from tllib_ancon.config.arguments import validated
from tllib_ancon.config.types import NotNegative, Number, Share
from tllib_ancon.runtime import processes
from tllib_ancon.self_training.anchored import MIXED
from tllib_ancon.self_training.checks import require_steps
from tllib_ancon.self_training.memory_bank import Neighborhood, NeighborMethod, NeighborVotes
from tllib_ancon.self_training.method import option_of
from tllib_ancon.self_training.registry import register


class AttractingDispersing(Neighborhood):
    r"""Attracts a prediction to those of its neighbours and disperses it from the rest of the batch.

    .. math::
        L = E_x\Big[-Σ_{j ∈ N(x)} <f(x), s_j> + α Σ_{x' ≠ x} <f(x), f(x')>\Big],   α = (1 + 10 t / I)^{-β}

    N(x) holds the nearest samples by cosine in a memory of all features, s the remembered predictions; x'
    runs over the batch; t counts the steps before this one, of I. The memory takes in the batch before the
    search. The official code's value is smaller by the entropies of s, a constant.

    Anchors f̄, AnCon's votes, replace s by 0.3 f̄ / Σ_k f̄_k + 0.7 s wherever a sample has votes.

    Args:
        num_samples, num_classes, feature_dim: as of
            :class:`~tllib_ancon.self_training.NeighborhoodReciprocity`
        neighbors (int): size of N(x), at most N - 1. Default: 3, the official code's for OfficeHome
            and Office-31; 5 for VisDA
        beta (float): β, at least 0; 0 keeps α = 1. Default: 0, the official code's for OfficeHome; 1 for Office-31, 5
            for VisDA
        total_steps (int): I, steps of the whole training; needed unless β = 0. Later steps count as the last.
        anchor_weight (float): as there

    Inputs: those of :class:`~tllib_ancon.self_training.NeighborhoodReciprocity`

    Outputs: float32 scalar loss; one call is one step

    Raises:
        UserError: also for a step before :meth:`initialize`

    Source: Yang et al., "Attracting and Dispersing: A Simple Approach for Source-free Domain Adaptation",
    NeurIPS 2022.
    """

    normalizes_anchors = True
    step: Tensor

    @validated
    def __init__(
        self,
        num_samples: Number,
        num_classes: Number,
        feature_dim: Number,
        neighbors: Number = 3,
        beta: NotNegative = 0.0,
        total_steps: Number | None = None,
        anchor_weight: Share = 0.3,
    ):
        super().__init__((num_samples, num_classes, feature_dim), anchor_weight)
        if beta:
            require_steps("beta", beta, total_steps)
        self.beta = beta
        self.neighbors = neighbors
        self.total_steps = total_steps
        self.register_buffer("step", torch.tensor(0))

    @property
    def dispersion(self) -> Tensor:
        """α of the next step, a scalar."""
        progress = (self.step / (self.total_steps or 1)).clamp(max=1)
        return (1 + 10 * progress) ** -self.beta

    def loss(self, indices: Tensor, predictions: Tensor, anchors: Tensor | None) -> Tensor:
        with torch.no_grad():
            near = self.nearest(indices, self.neighbors)
            scores = self.remembered(near, anchors)
        attraction = (scores.sum(1) * predictions).sum(1).mean()
        everyone_else = processes.total(predictions.sum(0)) - predictions
        dispersion = (predictions * everyone_else).sum(1).mean()
        loss = self.dispersion * dispersion - attraction
        self.step += 1
        return loss


@register("aad", composes=("elr",))
class _AaD(NeighborMethod):
    """Attracting and dispersing (Yang et al., 2022)."""

    neighbors = option_of(
        AttractingDispersing, "neighbors", help="nearest neighbours of a sample; 5 for NRC, 3 for AaD (5 on VisDA2017)"
    )
    aad_beta = option_of(
        AttractingDispersing,
        "beta",
        help="AaD: how fast dispersion fades; its authors use 1 on Office31, 5 on VisDA2017",
    )

    def __init__(self, **sizes_and_options: Any):
        super().__init__(**sizes_and_options)
        self.neighborhood = AttractingDispersing(*self.feature_sizes, self.neighbors, self.aad_beta, self.total_steps)


@register("aad+ancon")
class _AaDWithAnCon(NeighborVotes, _AaD):
    """AaD with the fixed weight λ of the votes."""


@register("aad+ancon-auto")
class _AaDWithAnConAuto(_AaDWithAnCon):
    """AaD with votes, by batch-norm statistics of source and target."""

    training_defaults: ClassVar = MIXED
