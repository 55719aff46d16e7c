"""Monte-Carlo dropout on the bottleneck's features."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tllib_ancon.errors import UserError
from tllib_ancon.self_training.checks import number, size


@torch.no_grad()
def mc_dropout_probabilities(
    features: Tensor,
    head: Callable[[Tensor], Tensor],
    passes: int = 20,
    p: float = 0.5,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""The predictive distribution averaged over dropout masks, without another pass through the backbone.

    .. math::
        \bar f(x) = 1/T Σ_t softmax(h(z(x) ⊙ m_t / (1 - p))),   m_t ∼ Bernoulli(1 - p)

    Args:
        features: (B, D) features z that the head receives
        head: h, (B, D) -> (B, K) logits; called T times in the mode it is in
        passes (int): T, at least 1. Default: 20
        p (float): probability of dropping a feature, in [0, 1). Default: 0.5
        generator: source of the masks, on any device; without one, torch's global generator

    Returns: (B, K) float32, without gradient

    Raises:
        UserError: shapes that do not fit, passes or p out of range

    Source: Gal & Ghahramani, "Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep
    Learning", ICML 2016; 20 passes with p = 0.2 and 0.5 in AnCon's appendix.
    """
    passes, p = size("passes", passes), number("p", p, at_least=0, below=1)
    if features.ndim != 2:
        raise UserError(f"features have shape {tuple(features.shape)}; expected (batch, features)")
    drawn_on = features.device if generator is None else generator.device
    probabilities = []
    for _ in range(passes):
        mask = torch.empty_like(features, device=drawn_on).bernoulli_(1 - p, generator=generator).to(features.device)
        probabilities.append(head(features * mask / (1 - p)).float().softmax(1))
    return sum(probabilities, torch.zeros(())) / passes
