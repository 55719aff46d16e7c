"""Where the confidence of a prediction comes from: the softmax, or Monte-Carlo dropout on the bottleneck's features."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Lt
from torch import Tensor

from tllib_ancon.errors import UserError
from tllib_ancon.self_training.checks import Option, validated
from tllib_ancon.self_training.method import Options, Task

WITH_DROPOUT = ("confidence", "mc-dropout")


@torch.no_grad()
@validated
def mc_dropout_probabilities(
    features: Tensor,
    head: Callable[[Tensor], Tensor],
    passes: Annotated[
        int, Ge(1), Option("passes through the head, for confidence=mc-dropout", "dropout_passes", WITH_DROPOUT)
    ] = 20,
    p: Annotated[
        float,
        Ge(0),
        Lt(1),
        Option(
            "probability of dropping a feature, for confidence=mc-dropout; the paper's are 0.2 and 0.5",
            "dropout_probability",
            WITH_DROPOUT,
        ),
    ] = 0.5,
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
    if features.ndim != 2:
        raise UserError(f"features have shape {tuple(features.shape)}; expected (batch, features)")
    drawn_on = features.device if generator is None else generator.device
    probabilities = []
    for _ in range(passes):
        mask = torch.empty_like(features, device=drawn_on).bernoulli_(1 - p, generator=generator).to(features.device)
        probabilities.append(head(features * mask / (1 - p)).float().softmax(1))
    return sum(probabilities, torch.zeros(())) / passes


class Confidence(Options):
    """What weighs the votes of a method, or is its loss."""

    confidence: Literal["softmax", "mc-dropout", "belief-matching"] = "softmax"
    """what the confidence of a prediction is taken from"""

    def check(self) -> None:
        super().check()
        read = type(self).model_fields
        if self.confidence == "belief-matching" and "belief_coefficient" not in read:
            raise UserError(
                "`confidence=belief-matching` is a loss in place of the cross-entropy, and this method has its own; "
                "use it with self-training, elr, ancon or ancon-auto"
            )
        if self.confidence == "mc-dropout" and "dropout_passes" not in read:
            raise UserError(
                "`confidence=mc-dropout` decides which predictions vote; choose a method with votes, such as ancon"
            )


def predictive_distribution(task: Task, options: Any) -> Callable[[Tensor, Tensor], Tensor] | None:
    """``(logits, features) -> (B, K)``; None for the softmax, which is also the mean of belief matching's Dirichlet."""
    if options.confidence != "mc-dropout":
        return None
    head, dropout = task.head, options.of(mc_dropout_probabilities)
    if head is None:
        raise UserError("`head` is needed by `confidence=mc-dropout`: pass the model's head")
    return lambda logits, features: mc_dropout_probabilities(features, head, **dropout)
