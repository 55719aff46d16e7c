"""Anchored confidence: pseudo-labels smoothed with the temporal ensemble."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.errors import UserError, unknown_name
from tllib_ancon.self_training.ensemble import TemporalEnsemble
from tllib_ancon.self_training.options import SCHEDULES
from tllib_ancon.self_training.pseudo_label import one_hot


class AnchoredConfidence(nn.Module):
    r"""AnCon's regularised pseudo-label (Eq. 1).

    .. math::
        ỹ(x) = (1 - λ) E_1(ŷ(x; θ_m)) + λ f̄(x)

    with ŷ the class of the largest logit, E_1 its one-hot vector and f̄ the
    :class:`~tllib_ancon.self_training.TemporalEnsemble`. With unnormalised votes, the default and the
    paper's implementation, the target's mass is not 1: (1 - λ) on a sample's first visit, growing with its votes.

    Args:
        num_samples (int): N, images of the whole target set
        num_classes (int): K
        smoothing (float): λ in [0, 1]; 0 is plain self-training. Default: 0.3
        beta (float): decay of the confidence's moving average. Default: 0.9
        convention (str): ``"authors"`` or ``"paper"``. Default: ``"authors"``
        storage (str): ``"auto"``, ``"dense"`` or ``"sparse"`` votes. Default: ``"auto"``
        schedule (str): ``"constant"``: λ; ``"full"``: m / I; ``"half"``: min(1, 2m / I), where m counts the steps
            before this one (paper, Section 4.3.2). Default: ``"constant"``
        total_steps (int): I; needed by ``"full"`` and ``"half"``
        **ensemble: further arguments of :class:`~tllib_ancon.self_training.TemporalEnsemble`

    Inputs:
        - indices: (B,) int64 or int32 in [0, N), best left on the CPU; one call is one visit of each
        - logits: (B, K) of any floating type; no gradient flows through the target
        - pseudo_labels (optional): (B,) int64 labels ŷ to smooth instead of the largest logit's
        - probabilities (optional): (B, K) a predictive distribution to take the confidence from

    Outputs: targets ỹ (B, K) float32

    Raises:
        UserError: shapes that do not fit, an index out of range, a parameter out of range

    Source: Joo & Klabjan, "Improving self-training under distribution shifts via anchored confidence with
    theoretical guarantees", NeurIPS 2024, Section 3.1.
    """

    def __init__(
        self,
        num_samples: int,
        num_classes: int,
        smoothing: float = 0.3,
        beta: float = 0.9,
        convention: str = "authors",
        storage: str = "auto",
        schedule: str = "constant",
        total_steps: int | None = None,
        **ensemble: Any,
    ):
        super().__init__()
        if not 0 <= smoothing <= 1:
            raise UserError(f"smoothing={smoothing}: expected a value in [0, 1]")
        if schedule not in SCHEDULES:
            raise unknown_name("smoothing schedule", schedule, SCHEDULES)
        if schedule != "constant" and (total_steps is None or total_steps < 1):
            raise UserError(f"schedule={schedule!r} needs total_steps, the number of steps of the whole training")
        self.base_smoothing = smoothing
        self.schedule = schedule
        self.total_steps = total_steps
        self.ensemble = TemporalEnsemble(
            num_samples, num_classes, beta=beta, convention=convention, storage=storage, **ensemble
        )
        self.register_buffer("step", torch.tensor(0))

    @property
    def threshold(self) -> Tensor:
        """δ, a scalar tensor."""
        return self.ensemble.threshold

    @property
    def smoothing(self) -> Tensor | float:
        """λ of the next step."""
        if self.schedule == "constant":
            return self.base_smoothing
        speed = 1 if self.schedule == "full" else 2
        return (speed * self.step / self.total_steps).clamp(max=1.0)

    def forward(
        self,
        indices: Tensor,
        logits: Tensor,
        pseudo_labels: Tensor | None = None,
        probabilities: Tensor | None = None,
    ) -> Tensor:
        ensemble = self.ensemble(indices, logits, probabilities)
        smoothing = self.smoothing
        if self.schedule != "constant":
            self.step.add_(1)
        labels = logits.argmax(1) if pseudo_labels is None else pseudo_labels
        return one_hot(labels, logits.shape[1]).lerp(ensemble, smoothing)
