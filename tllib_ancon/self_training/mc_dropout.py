"""The predictive distribution by Monte-Carlo dropout on the bottleneck's features."""

from collections.abc import Callable

import torch
from torch import Tensor

from tllib_ancon.runtime.errors import BadSetting, UserError, named


@torch.no_grad()
def mc_dropout_probabilities(
    features: Tensor,
    head: Callable[[Tensor], Tensor],
    passes: int = 20,
    p: float = 0.5,
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
    if passes < 1:
        raise BadSetting(f"{named('passes')} must be at least 1, got {passes}", setting="passes")
    if not 0 <= p < 1:
        raise BadSetting(f"{named('p')} must be at least 0 and below 1, got {p}", setting="p")
    if features.ndim != 2:
        raise UserError(f"features have shape {tuple(features.shape)}", "expected (batch, features)")
    drawn_on = features.device if generator is None else generator.device
    probabilities = []
    for _ in range(passes):
        mask = torch.empty_like(features, device=drawn_on).bernoulli_(1 - p, generator=generator).to(features.device)
        probabilities.append(head(features * mask / (1 - p)).float().softmax(1))
    return sum(probabilities, torch.zeros(())) / passes
