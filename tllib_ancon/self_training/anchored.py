"""Anchored confidence: pseudo-labels smoothed with the temporal ensemble."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tllib_ancon.errors import UserError
from tllib_ancon.self_training.checks import choice, number
from tllib_ancon.self_training.ensemble import TemporalEnsemble
from tllib_ancon.self_training.options import SCHEDULES
from tllib_ancon.self_training.precision import FixedPrecision
from tllib_ancon.self_training.pseudo_label import one_hot


class AnchoredConfidence(FixedPrecision):
    r"""AnCon's regularised pseudo-label (Eq. 1).

    .. math::
        ỹ(x) = (1 - λ) E_1(ŷ(x; θ_m)) + λ f̄(x)

    with ŷ the class of the largest logit, E_1 its one-hot vector and f̄ the
    :class:`~tllib_ancon.self_training.TemporalEnsemble`. With unnormalised votes, the default and the
    paper's implementation, the target's mass is not 1: (1 - λ) on a sample's first visit, growing with its votes.
    ``convention="paper"`` with ``normalize=True`` is Equations 1–3 to the letter.

    In evaluation mode (``.eval()``) a visit reads the ensemble and changes nothing. The state keeps its precision
    whatever the module is cast to.

    Args:
        num_samples (int): N, images of the whole target set
        num_classes (int): K
        smoothing (float): λ in [0, 1]; 0 is plain self-training. Default: 0.3
        beta (float): decay of the confidence's moving average. Default: 0.9
        convention (str): ``"authors"``: a visit reads f̄ and then adds its prediction; ``"paper"``: it adds and then
            reads. Default: ``"authors"``
        storage (str): ``"auto"``, ``"dense"`` or ``"sparse"`` votes. Default: ``"auto"``
        schedule (str): ``"constant"``: λ; ``"full"``: m / I; ``"half"``: min(1, 2m / I), where m counts the steps
            before this one (paper, Section 4.3.2). Default: ``"constant"``
        total_steps (int): I; needed by ``"full"`` and ``"half"``
        weighting, prediction, temperature, normalize, quantile, fixed_threshold: as
            :class:`~tllib_ancon.self_training.TemporalEnsemble` has them

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

    step: Tensor

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
        *,
        weighting: str = "relative",
        prediction: str = "hard",
        temperature: float = 1.0,
        normalize: bool = False,
        quantile: float = 0.9,
        fixed_threshold: float = 0.9,
    ):
        super().__init__()
        self.base_smoothing = _smoothing(smoothing)
        self.schedule = choice("schedule", schedule, SCHEDULES)
        if schedule != "constant" and (total_steps is None or total_steps < 1):
            raise UserError(f"`schedule={schedule}` needs `total_steps`, the number of steps of the whole training")
        self.total_steps = total_steps
        self.ensemble = TemporalEnsemble(
            num_samples,
            num_classes,
            beta=beta,
            convention=convention,
            storage=storage,
            weighting=weighting,
            prediction=prediction,
            temperature=temperature,
            normalize=normalize,
            quantile=quantile,
            fixed_threshold=fixed_threshold,
        )
        self.register_buffer("step", torch.tensor(0))

    @property
    def threshold(self) -> Tensor:
        """δ, a scalar tensor."""
        return self.ensemble.threshold

    @property
    def ignored(self) -> Tensor:
        """Rows with NaN or infinity so far, which did not vote: an int64 scalar."""
        return self.ensemble.ignored

    @property
    def smoothing(self) -> Tensor | float:
        """λ of the next step."""
        if self.total_steps is None or self.schedule == "constant":
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
        ensemble: Tensor = self.ensemble(indices, logits, probabilities)
        smoothing = self.smoothing
        if self.schedule != "constant" and self.training:
            self.step.add_(1)
        labels = logits.argmax(1) if pseudo_labels is None else pseudo_labels
        return one_hot(labels, logits.shape[1]).lerp(ensemble, smoothing)


def _smoothing(value: Any) -> float:
    if isinstance(value, str):
        raise UserError(f"`smoothing` must be a number, got {value!r}; AdaptiveSmoothing needs none")
    return number("smoothing", value, at_least=0, at_most=1)
