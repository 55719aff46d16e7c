"""Generalised cross-entropy."""

from typing import Literal

from torch import Tensor

from tllib_ancon.config.arguments import validated
from tllib_ancon.config.types import Fraction
from tllib_ancon.self_training.checks import as_weights
from tllib_ancon.self_training.method import Method, Visit, option_of
from tllib_ancon.self_training.registry import COMPOSITIONS, register

LOG_OF_ZERO = -1e4
"""Finite, so that a target without any mass has a gradient; once raised to a power q it is 0."""


@validated
def generalized_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    q: Fraction = 0.8,
    reduction: Literal["mean", "sum", "none"] = "mean",
) -> Tensor:
    r"""A loss between cross-entropy (q → 0) and mean absolute error (q = 1), robust to wrong labels.

    .. math::
        L = (1 - (Σ_k f_k ỹ_k)^q) / q

    with f the softmax. Targets need no particular mass, as in AnCon's code: a mass above 1 can make L
    negative. The power is taken in the log domain, so that neither L nor its gradient breaks where f_k
    underflows.

    Args:
        logits: (B, K) of any floating type
        targets: (B, K) non-negative weights, which get no gradient, or (B,) integer classes
        q (float): in (0, 1]. Default: 0.8
        reduction (str): ``"mean"``, ``"sum"`` or ``"none"``. Default: ``"mean"``

    Returns: float32, a scalar, or (B,) for ``"none"``

    Source: Zhang & Sabuncu, "Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy
    Labels", NeurIPS 2018; for self-training Rusak et al., "If your data distribution shifts, use
    self-learning", TMLR 2022.
    """
    log_weights = as_weights(targets, logits).log().clamp_min(LOG_OF_ZERO)
    log_agreement = (logits.float().log_softmax(1) + log_weights).logsumexp(1)
    losses = (1 - (q * log_agreement).exp()) / q
    if reduction == "mean":
        return losses.mean()
    if reduction == "sum":
        return losses.sum()
    return losses


@register("gce", composes=COMPOSITIONS)
class _GCE(Method):
    """Self-training by the generalised cross-entropy (Zhang & Sabuncu, 2018)."""

    q = option_of(generalized_cross_entropy, "q", help="exponent of the generalised cross-entropy, in (0, 1]")

    def objective(self, visit: Visit, targets: Tensor) -> Tensor:
        return generalized_cross_entropy(visit.logits, targets, self.q)
