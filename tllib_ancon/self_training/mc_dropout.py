"""The predictive distribution by Monte-Carlo dropout on the bottleneck's features."""

from collections.abc import Callable

import torch
from torch import Tensor

PASSES = 20


@torch.no_grad()
def mc_dropout_probabilities(features: Tensor, head: Callable[[Tensor], Tensor], p: float) -> Tensor:
    r"""The predictive distribution (B, K) averaged over dropout masks, without another pass through the backbone.

    .. math::
        \bar f(x) = 1/20 Σ_t softmax(h(z(x) ⊙ m_t / (1 - p))),   m_t ∼ Bernoulli(1 - p)

    The head h receives the features z, (B, D), in the mode it is in. The masks are drawn from torch's global generator
    of the features' device. The result has no gradient.

    Source: Gal & Ghahramani, "Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep Learning",
    ICML 2016; 20 passes with p = 0.2 and 0.5 in AnCon's appendix.
    """
    probabilities = []
    for _ in range(PASSES):
        mask = torch.empty_like(features).bernoulli_(1 - p)
        probabilities.append(head(features * mask / (1 - p)).float().softmax(1))
    return torch.stack(probabilities).mean(0)
