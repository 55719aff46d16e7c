"""Methods of the normalisation layers alone: Tent trains their scale and shift, AdaBN re-estimates their statistics."""

from typing import ClassVar

from torch import Tensor

from tllib_ancon.self_training.checks import check_logits
from tllib_ancon.self_training.method import Method, Visit
from tllib_ancon.self_training.registry import register


def softmax_entropy(logits: Tensor) -> Tensor:
    r"""How uncertain each prediction is, in nats; its mean over a batch is Tent's loss.

    .. math::
        H(f) = - Σ_k f_k log f_k

    with f the softmax, whose logarithm is that of the logits, so that neither H nor its gradient breaks where f_k
    underflows.

    Args:
        logits: (B, K) of any floating type

    Returns: (B,) float32 in [0, log K]

    Source: Wang et al., "Tent: Fully Test-Time Adaptation by Entropy Minimization", ICLR 2021, Section 3.1.
    """
    check_logits(logits)
    log_probabilities = logits.float().log_softmax(1)
    return -(log_probabilities.exp() * log_probabilities).sum(1)


@register("tent")
class _Tent(Method):
    """Entropy minimisation by scale and shift of the normalisation layers (Wang et al., 2021)."""

    makes_labels = False
    training_defaults: ClassVar = {"adapted": "norm-affine"}

    def objective(self, visit: Visit, targets: Tensor) -> Tensor:
        """The mean over the rows that are finite; 0 if there are none."""
        usable = visit.logits.isfinite().all(1)
        entropies = softmax_entropy(visit.logits.masked_fill(~usable[:, None], 0)).masked_fill(~usable, 0)
        return entropies.sum() / usable.sum().clamp(1)


@register("adabn")
class _AdaBN(Method):
    """The target's batch-norm statistics, and no training (Li et al., 2016)."""

    trains = False
    makes_labels = False
    training_defaults: ClassVar = {"epochs": 1, "adapted": "all"}

    def objective(self, visit: Visit, targets: Tensor) -> Tensor:
        return visit.logits.sum() * 0
