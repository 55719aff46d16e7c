"""Attracting and dispersing."""

from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge
from torch import Tensor

from tllib_ancon import processes
from tllib_ancon.errors import UserError
from tllib_ancon.methods import register
from tllib_ancon.self_training.anchored import OF_A_WEIGHT, VOTES, Smoothing, anchored_by_votes
from tllib_ancon.self_training.checks import Option, Size, validated
from tllib_ancon.self_training.memory_bank import Neighborhood, neighborhood_inputs
from tllib_ancon.self_training.method import Method, Part, Task, no_targets, options_of
from tllib_ancon.self_training.neighbors import Neighbors, available_neighbors, nearest


class AttractingDispersing(Neighborhood):
    r"""Attracts a prediction to those of its neighbours and disperses it from the rest of the batch.

    .. math::
        L = E_x\Big[-Σ_{j ∈ N(x)} <f(x), s_j> + α Σ_{x' ≠ x} <f(x), f(x')>\Big],   α = (1 + 10 t / I)^{-β}

    N(x) holds the nearest samples by cosine in a memory of all features, s the remembered predictions; x'
    runs over the batch; t counts the steps before this one, of I. The memory takes in the batch before the
    search. The official code's value is smaller by the entropies of s, a constant.

    Anchors f̄, AnCon's votes, replace s by 0.3 f̄ / Σ_k f̄_k + 0.7 s wherever a sample has votes.

    Args:
        num_samples, num_classes, feature_dim, anchor_weight: as of
            :class:`~tllib_ancon.self_training.NeighborhoodReciprocity`
        neighbors (int): size of N(x); clamped to N - 1 with a warning. Default: 3, the official code's for OfficeHome
            and Office-31; 5 for VisDA
        beta (float): β, at least 0; 0 keeps α = 1. Default: 0, the official code's for OfficeHome; 1 for Office-31, 5
            for VisDA
        total_steps (int): I, steps of the whole training; needed unless β = 0. Later steps count as the last.
        mixing (str): how f̄ enters, as there. Default: ``"normalized"``

    Inputs: those of :class:`~tllib_ancon.self_training.NeighborhoodReciprocity`

    Outputs: float32 scalar loss; one call is one step

    Raises:
        UserError: also for a step before :meth:`initialize`

    Source: Yang et al., "Attracting and Dispersing: A Simple Approach for Source-free Domain Adaptation",
    NeurIPS 2022.
    """

    step: Tensor

    @validated
    def __init__(
        self,
        num_samples: Size,
        num_classes: Size,
        feature_dim: Size,
        neighbors: Neighbors = 3,
        beta: Annotated[
            float,
            Ge(0),
            Option("AaD: how fast dispersion fades; its authors use 1 on Office31, 5 on VisDA2017", "aad_beta"),
        ] = 0.0,
        total_steps: int | None = None,
        anchor_weight: Smoothing = 0.3,
        mixing: Literal["authors", "normalized", "adaptive"] = "normalized",
    ):
        super().__init__((num_samples, num_classes, feature_dim), mixing, anchor_weight)
        if beta and (total_steps is None or total_steps < 1):
            raise UserError(
                f"AaD's `total_steps={total_steps}`: dispersion decays over the whole training, so pass its number of "
                "steps, or `beta=0` for no decay"
            )
        self.beta = beta
        self.neighbors = available_neighbors("neighbors", neighbors, num_samples)
        self.total_steps = total_steps
        self.register_buffer("step", torch.tensor(0))

    @property
    def dispersion(self) -> Tensor:
        """α of the next step, a scalar."""
        progress = (self.step / (self.total_steps or 1)).clamp(max=1)
        return (1 + 10 * progress) ** -self.beta

    def loss(self, indices: Tensor, predictions: Tensor, anchors: Tensor | None) -> Tensor:
        with torch.no_grad():
            near = nearest(self.features[indices], self.features, self.neighbors, indices)
            scores = self.remembered(near, anchors)
        attraction = (scores.sum(1) * predictions).sum(1).mean()
        everyone_else = processes.total(predictions.sum(0)) - predictions
        dispersion = (predictions * everyone_else).sum(1).mean()
        loss = self.dispersion * dispersion - attraction
        self.step += 1
        return loss


@register("aad", options=options_of(AttractingDispersing, without=("smoothing",)), composes=("elr",))
def aad(task: Task, options: Any, mixing: Any = "normalized") -> Method:
    given = options.of(AttractingDispersing)
    loss = AttractingDispersing(*task.sizes, **given, total_steps=task.total_steps, mixing=mixing)
    return Method(Part(loss, neighborhood_inputs), refiner=no_targets)


@register("aad+ancon", options=options_of(AttractingDispersing, *VOTES))
def aad_ancon(task: Task, options: Any) -> Method:
    """AaD with the fixed weight λ of the votes."""
    return anchored_by_votes(aad(task, options), task, options)


@register("aad+ancon-auto", options=options_of(AttractingDispersing, *VOTES, without=OF_A_WEIGHT))
def aad_ancon_auto(task: Task, options: Any) -> Method:
    """AaD in which a neighbour's prediction counts as one more vote, so that Q votes weigh Q / (1 + Q)."""
    return anchored_by_votes(aad(task, options, "adaptive"), task, options)
