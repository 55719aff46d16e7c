"""Where AnCon takes a prediction's confidence from: the softmax, MC-dropout or a last-layer Dirichlet."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from tllib_ancon.self_training.belief_matching import dirichlet_mean
from tllib_ancon.self_training.mc_dropout import mc_dropout_probabilities

CONFIDENCES = ("softmax", "mc-dropout", "belief-matching")


class MonteCarloDropout(nn.Module):
    """:func:`~tllib_ancon.self_training.mc_dropout.mc_dropout_probabilities` with a model's own head.

    Args:
        head: (B, D) -> (B, K) logits; its tensors do not become state of this part
        passes (int): T. Default: 20
        p (float): probability of dropping a feature. Default: 0.5

    Inputs: logits (B, K), ignored; features (B, D)

    Outputs: (B, K) float32
    """

    def __init__(self, head: Callable[[Tensor], Tensor], passes: int = 20, p: float = 0.5):
        super().__init__()
        self._head = head.__call__
        self.passes = passes
        self.p = p

    def forward(self, logits: Tensor, features: Tensor) -> Tensor:
        return mc_dropout_probabilities(features.detach(), self._head, self.passes, self.p)


class DirichletMean(nn.Module):
    """:func:`~tllib_ancon.self_training.belief_matching.dirichlet_mean` of the logits; features are ignored."""

    def forward(self, logits: Tensor, features: Tensor) -> Tensor:
        return dirichlet_mean(logits.detach())
