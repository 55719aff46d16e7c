"""AnCon without λ: each sample's votes decide its weight, and all samples' votes the weight of a class."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.self_training import processes
from tllib_ancon.self_training.ensemble import TemporalEnsemble
from tllib_ancon.self_training.pseudo_label import one_hot

LARGEST_MASS = 3.0
"""Of a target: the most that a sample of a rare class counts."""


class AdaptiveSmoothing(nn.Module):
    r"""A pseudo-label that needs no λ. Not in the paper; see ``benchmarks/results/do_no_harm.md``.

    The prediction of this visit counts as one more vote beside the sample's Q(x) confident votes v(x):

    .. math::
        t(x) = (1 - λ(x)) E_1(ŷ(x)) + λ(x) v(x) / Q(x) = (E_1(ŷ(x)) + v(x)) / (1 + Q(x)),   λ(x) = Q(x) / (1 + Q(x))

    and each class counts inversely to its share π of such targets, a moving average that starts at 1 / K:

    .. math::
        ỹ_k(x) = t_k(x) / (K π_k),   π ← β π + (1 - β) mean_batch t

    The mass of a target is at most 3. Classes that take over lose their weight, which is what keeps self-training from
    collapsing; where classes are far from balanced in truth, expect less gain.

    Args:
        num_samples (int): N, images of the whole target set
        num_classes (int): K
        beta (float): decay β of the confidence's and of the shares' moving average. Default: 0.9
        **ensemble: further arguments of :class:`~tllib_ancon.self_training.TemporalEnsemble`

    Inputs: those of :class:`~tllib_ancon.self_training.AnchoredConfidence`

    Outputs: targets ỹ (B, K) float32 of a mass in (0, 3]

    Raises:
        UserError: shapes that do not fit, an index out of range, a parameter out of range
    """

    def __init__(self, num_samples: int, num_classes: int, beta: float = 0.9, **ensemble: Any):
        super().__init__()
        self.beta = beta
        self.ensemble = TemporalEnsemble(num_samples, num_classes, beta=beta, **ensemble)
        self.register_buffer("shares", torch.full((num_classes,), 1 / num_classes))

    @torch.no_grad()
    def forward(
        self,
        indices: Tensor,
        logits: Tensor,
        pseudo_labels: Tensor | None = None,
        probabilities: Tensor | None = None,
    ) -> Tensor:
        votes = self.ensemble(indices, logits, probabilities)
        labels = logits.argmax(1) if pseudo_labels is None else pseudo_labels
        counted = votes + one_hot(labels, logits.shape[1])
        targets = counted / counted.sum(1, keepdim=True)
        self.shares.mul_(self.beta).add_(processes.mean(targets.mean(0)), alpha=1 - self.beta)
        weighted = targets / (len(self.shares) * self.shares).clamp(min=torch.finfo(targets.dtype).tiny)
        mass = weighted.sum(1, keepdim=True)
        return weighted * (mass.clamp(max=LARGEST_MASS) / mass)
