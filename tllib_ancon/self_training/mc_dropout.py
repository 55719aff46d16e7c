"""The predictive distribution by Monte-Carlo dropout on the bottleneck's features."""

from collections.abc import Callable

import torch
from torch import Tensor

from tllib_ancon.config.arguments import validated
from tllib_ancon.config.types import BelowOne, Number
from tllib_ancon.self_training.checks import check_tensor


@torch.no_grad()
@validated
def mc_dropout_probabilities(
    features: Tensor,
    head: Callable[[Tensor], Tensor],
    passes: Number = 20,
    p: BelowOne = 0.5,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""The predictive distribution (B, K) averaged over dropout masks, without another pass through the backbone.

    .. math::
        \bar f(x) = 1/T Σ_t softmax(h(z(x) ⊙ m_t / (1 - p))),   m_t ∼ Bernoulli(1 - p)

    The head h receives the features z, (B, D), and is called T times, the ``passes``, in the mode it is in. Without a
    generator, which may be on any device, the masks are torch's global one's. The result has no gradient.

    Source: Gal & Ghahramani, "Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep Learning",
    ICML 2016; 20 passes with p = 0.2 and 0.5 in AnCon's appendix.
    """
    check_tensor("features", features, ("B", "D"))
    drawn_on = features.device if generator is None else generator.device
    probabilities = []
    for _ in range(passes):
        mask = torch.empty_like(features, device=drawn_on).bernoulli_(1 - p, generator=generator).to(features.device)
        probabilities.append(head(features * mask / (1 - p)).float().softmax(1))
    return sum(probabilities, torch.zeros(())) / passes
