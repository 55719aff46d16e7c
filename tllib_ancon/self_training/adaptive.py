"""AnCon without λ: each sample's votes decide their weight."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from tllib_ancon.config.arguments import validated
from tllib_ancon.config.types import Number
from tllib_ancon.self_training.anchored import SmoothedLabels, one_hot_labels
from tllib_ancon.self_training.auto import TRAINING
from tllib_ancon.self_training.ensemble import TemporalEnsemble
from tllib_ancon.self_training.method import Visit
from tllib_ancon.self_training.registry import register
from tllib_ancon.self_training.shot import SHOT
from tllib_ancon.self_training.voting import WithVotes


class AdaptiveSmoothing(SmoothedLabels):
    r"""A pseudo-label that needs no λ: that of the method ``ancon-auto``. Not in the paper; see
    ``benchmarks/tried.md``.

    The prediction of this visit counts as one more vote beside the sample's Q(x) confident votes v(x):

    .. math::
        ỹ(x) = (1 - λ(x)) E_1(ŷ(x)) + λ(x) v(x) / Q(x) = (E_1(ŷ(x)) + v(x)) / (1 + Q(x)),   λ(x) = Q(x) / (1 + Q(x))

    In evaluation mode a visit changes nothing. A row with NaN or infinity changes no votes.

    Args:
        num_samples, num_classes (int): N images of the whole target set, K classes
        **ensemble: arguments of :class:`~tllib_ancon.self_training.TemporalEnsemble`

    Inputs: those of :class:`~tllib_ancon.self_training.AnchoredConfidence`

    Outputs: targets ỹ (B, K) float32 of mass 1
    """

    @validated
    def __init__(self, num_samples: Number, num_classes: Number, **ensemble: Any):
        super().__init__()
        self.ensemble = TemporalEnsemble(num_samples, num_classes, **ensemble)

    @torch.no_grad()
    def forward(
        self, indices: Tensor, logits: Tensor, pseudo_labels: Tensor | None = None, probabilities: Tensor | None = None
    ) -> Tensor:
        votes: Tensor = self.ensemble(indices, logits, probabilities)
        counted = votes + one_hot_labels(logits, pseudo_labels)
        return counted / counted.sum(1, keepdim=True)


@register("+ancon-auto")
class _WithAnConAuto(WithVotes):
    """Smooth a method's pseudo-labels with its votes, without λ, and train as ``auto`` does."""

    training_defaults: ClassVar = TRAINING

    def __init__(self, **sizes_and_options: Any):
        super().__init__(**sizes_and_options)
        self.adaptive = AdaptiveSmoothing(self.num_rows, self.num_classes, **self.ensemble_options())

    def targets(self, visit: Visit) -> Tensor:
        targets: Tensor = self.adaptive(visit.rows, visit.predictions, visit.labels, visit.probabilities)
        return targets


@register("shot+ancon-auto")
class _SHOTWithAnConAuto(_WithAnConAuto, SHOT):
    """SHOT with adaptively smoothed pseudo-labels."""
