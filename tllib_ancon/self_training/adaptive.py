"""AnCon without λ: each sample's votes decide their weight."""

from typing import Any

import torch
from torch import Tensor

from tllib_ancon.config.arguments import validated
from tllib_ancon.config.types import Number
from tllib_ancon.self_training.anchored import SmoothedLabels, one_hot_labels
from tllib_ancon.self_training.ensemble import TemporalEnsemble


class AdaptiveSmoothing(SmoothedLabels):
    r"""A pseudo-label that needs no λ, for an own loop. Not in the paper, and no method's: see ``benchmarks/tried.md``.

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
