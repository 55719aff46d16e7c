"""Anchored confidence: pseudo-labels smoothed with the temporal ensemble."""

import math
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from tllib_ancon.config.arguments import validated
from tllib_ancon.config.types import Number, Share
from tllib_ancon.runtime import processes
from tllib_ancon.self_training.checks import FixedPrecision, require_steps
from tllib_ancon.self_training.ensemble import TemporalEnsemble
from tllib_ancon.self_training.method import Visit, one_hot, option_of
from tllib_ancon.self_training.registry import register
from tllib_ancon.self_training.voting import WithVotes

Schedule = Literal["constant", "full", "half"]
MIXED = {"criterion": "last", "batch_norm": "mixed"}
"""How the default trains: on all images to the last epoch, by mixed batch-norm statistics
(:func:`~tllib_ancon.models.batch_norm.agreement`)."""
SURE = 0.6
"""Share of log K, the largest entropy. Where the mean entropy of a batch is below it, the model is sure of this batch.
"""


class SmoothedLabels(FixedPrecision):
    """Base of modules that make targets from pseudo-labels and votes."""

    ensemble: TemporalEnsemble

    @property
    def threshold(self) -> Tensor:
        """δ, a scalar tensor."""
        return self.ensemble.threshold


class AnchoredConfidence(SmoothedLabels):
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
        num_samples, num_classes (int): N images of the whole target set, K classes
        smoothing (float): λ in [0, 1]; 0 is plain self-training. Default: 0.3
        schedule (str): ``"constant"``: λ; ``"full"``: m / I; ``"half"``: min(1, 2m / I), where m counts the steps
            before this one (paper, Section 4.3.2). Default: ``"constant"``
        total_steps (int): I; needed by ``"full"`` and ``"half"``
        **ensemble: ``beta``, ``convention`` and all other arguments of
            :class:`~tllib_ancon.self_training.TemporalEnsemble`

    Inputs:
        - indices: (B,) int64 or int32 in [0, N), best left on the CPU; one call is one visit of each
        - logits: (B, K) of any floating type; no gradient flows through the target
        - pseudo_labels (optional): (B,) int64 labels ŷ to smooth instead of the largest logit's
        - probabilities (optional): (B, K) a predictive distribution to take the confidence from instead of
          softmax(logits), e.g. that of MC-dropout

    Outputs: targets ỹ (B, K) float32

    Source: Joo & Klabjan, "Improving self-training under distribution shifts via anchored confidence with
    theoretical guarantees", NeurIPS 2024, Section 3.1.
    """

    step: Tensor

    @validated
    def __init__(
        self,
        num_samples: Number,
        num_classes: Number,
        smoothing: Share = 0.3,
        schedule: Schedule = "constant",
        total_steps: Number | None = None,
        **ensemble: Any,
    ):
        super().__init__()
        self.base_smoothing = smoothing
        self.schedule = schedule
        if schedule != "constant":
            require_steps("schedule", schedule, total_steps)
        self.total_steps = total_steps
        self.ensemble = TemporalEnsemble(num_samples, num_classes, **ensemble)
        self.register_buffer("step", torch.tensor(0))

    @property
    def smoothing(self) -> Tensor | float:
        """λ of the next step."""
        if self.total_steps is None or self.schedule == "constant":
            return self.base_smoothing
        speed = 1 if self.schedule == "full" else 2
        return (speed * self.step / self.total_steps).clamp(max=1.0)

    def forward(
        self, indices: Tensor, logits: Tensor, pseudo_labels: Tensor | None = None, probabilities: Tensor | None = None
    ) -> Tensor:
        ensemble: Tensor = self.ensemble(indices, logits, probabilities)
        smoothing = self.smoothing
        if self.schedule != "constant" and self.training:
            self.step.add_(1)
        return one_hot_labels(logits, pseudo_labels).lerp(ensemble, smoothing)


def one_hot_labels(logits: Tensor, pseudo_labels: Tensor | None) -> Tensor:
    """The pseudo-labels as one-hot rows (B, K), by default the classes of the largest logits."""
    labels = logits.argmax(1) if pseudo_labels is None else pseudo_labels
    return one_hot(labels, logits.shape[1])


@register("+ancon")
class _WithAnCon(WithVotes):
    """Smooth a method's pseudo-labels with its votes, as in the paper."""

    schedule = option_of(
        AnchoredConfidence,
        "schedule",
        help="λ over training: constant, full (step/steps) or half (min(1, 2 step/steps))",
    )

    def __init__(self, **sizes_and_options: Any):
        super().__init__(**sizes_and_options)
        self.anchored = AnchoredConfidence(
            self.num_rows, self.num_classes, self.smoothing, self.schedule, self.total_steps, **self.ensemble_options()
        )

    def targets(self, visit: Visit) -> Tensor:
        targets: Tensor = self.anchored(visit.rows, visit.predictions, visit.labels, visit.probabilities)
        return targets


@register("+ancon-auto")
class _WithAnConAuto(_WithAnCon):
    """The default: AnCon by batch-norm statistics of source and target, on batches that the model is sure of. The
    paper has neither."""

    training_defaults: ClassVar = MIXED

    def targets(self, visit: Visit) -> Tensor:
        """AnCon's, and 0 of a batch, that of all processes, that the model is unsure of, so that it teaches nothing."""
        entropies = torch.special.entr(visit.probabilities).sum(1)
        self.is_sure = processes.mean(entropies.mean()) < SURE * math.log(self.num_classes)
        targets: Tensor = super().targets(visit) * self.is_sure
        return targets

    def diagnostics(self) -> dict[str, Tensor]:
        """Those of AnCon, and whether the model was sure of the last batch."""
        return {**super().diagnostics(), "sure": self.is_sure.float()}
