"""Plain self-training: one-hot pseudo-labels, and the cross-entropy or belief matching against them."""

import math
from typing import Literal

from torch import Tensor

from tllib_ancon.config.arguments import validated
from tllib_ancon.config.types import NotNegative
from tllib_ancon.self_training.checks import as_weights
from tllib_ancon.self_training.method import Method, Visit, option
from tllib_ancon.self_training.registry import COMPOSITIONS, register

LARGEST_LOG_CONCENTRATION = 30.0
"""Beyond it, up or down, the loss or its gradient leaves float32's range."""


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean over the batch of H(f, ỹ) = - Σ_k ỹ_k log f_k for targets (B, K) of any mass; a float32 scalar."""
    return -(targets * logits.float().log_softmax(1)).sum(1).mean()


@validated
def belief_matching_loss(logits: Tensor, targets: Tensor, coefficient: NotNegative = 0.001) -> Tensor:
    """The negative evidence lower bound of a last-layer Dirichlet, mean over the batch.

    .. math::
        L = - Σ_k y_k (ψ(α_k) - ψ(α_0)) + coefficient · KL(Dir(α) ‖ Dir(1))

    with α = exp(logits), α_0 = Σ_k α_k and the uniform distribution Dir(1) as prior. The predictive distribution
    α_k / α_0 is the softmax. Targets y are (B, K) non-negative weights, which get no gradient, or (B,) integer classes.
    The official code leaves out the part of the divergence that depends on the prior alone, a constant: same gradient,
    another value. Logits beyond ±30 count as ±30. AnCon's appendix has the coefficient 0.001.

    Source: Joo, Chung & Seo, "Being Bayesian about Categorical Probability", ICML 2020, Eq. 9–11.
    """
    weights = as_weights(targets, logits)
    alpha = logits.float().clamp(-LARGEST_LOG_CONCENTRATION, LARGEST_LOG_CONCENTRATION).exp()
    expected_logs = alpha.digamma() - alpha.sum(1, keepdim=True).digamma()
    log_likelihood = (weights * expected_logs).sum(1)
    log_normalizer = alpha.lgamma().sum(1) - alpha.sum(1).lgamma()
    log_normalizer_of_prior = -math.lgamma(logits.shape[1])
    divergence = ((alpha - 1) * expected_logs).sum(1) + log_normalizer_of_prior - log_normalizer
    return (coefficient * divergence - log_likelihood).mean()


@register("self-training", composes=COMPOSITIONS)
class SelfTraining(Method):
    """Cross-entropy, or belief matching, against pseudo-labels (Lee, 2013)."""

    loss: Literal["cross-entropy", "belief-matching"] = option(
        "cross-entropy", help="loss of the targets; belief-matching trains the last layer to give a Dirichlet"
    )

    def objective(self, visit: Visit, targets: Tensor) -> Tensor:
        if self.loss == "belief-matching":
            return belief_matching_loss(visit.logits, targets)
        return cross_entropy(visit.logits, targets)
