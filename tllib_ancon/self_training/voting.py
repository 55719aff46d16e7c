"""What methods with votes share: their options, the ensemble, and the distribution that the confidence is taken of."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tllib_ancon.config.types import BelowOne
from tllib_ancon.runtime.errors import BadSetting, named
from tllib_ancon.runtime.types import Options
from tllib_ancon.self_training.ensemble import TemporalEnsemble
from tllib_ancon.self_training.method import Method, option, option_of

PASSES = 20
"""Of Monte-Carlo dropout."""

OF_THE_ENSEMBLE = ("beta", "weighting", "temperature", "convention", "normalize")


class WithVotes(Method):
    """Base of methods whose confident predictions vote, with the fixed weight λ."""

    smoothing: float = option(0.3, ge=0, le=1, help="AnCon's λ in [0, 1]: weight of the votes in the target")
    convention = option_of(
        TemporalEnsemble,
        "convention",
        help="when votes are read and how δ starts: as in the authors' code or as in the paper",
    )
    normalize = option_of(TemporalEnsemble, "normalize", help="divide a sample's votes by their number")
    beta = option_of(
        TemporalEnsemble, "beta", help="AnCon's β in [0, 1): decay of the moving average of the confidence"
    )
    weighting = option_of(
        TemporalEnsemble,
        "weighting",
        help="which predictions vote, and how much each counts; a number: those with a confidence above it, all with 0",
    )
    temperature = option_of(
        TemporalEnsemble,
        "temperature",
        help="what a vote is: 0, the one-hot prediction, or the softmax of this temperature",
    )
    mc_dropout: BelowOne = option(
        0.0,
        help="take the confidence from the mean of 20 passes through the head that drop features with this "
        "probability; the paper's are 0.2 and 0.5",
    )

    def __init__(self, **sizes_and_options: Any):
        super().__init__(**sizes_and_options)
        if self.mc_dropout and self.head is None:
            raise BadSetting(
                f"{named('mc_dropout', self.mc_dropout)} needs the model's head, and it is not known",
                "name the head, or leave it out",
                setting="mc_dropout",
            )

    def ensemble_options(self) -> Options:
        """The options of :class:`~tllib_ancon.self_training.TemporalEnsemble` that this method has."""
        return {name: getattr(self, name) for name in OF_THE_ENSEMBLE}

    def distribution(self, features: Tensor, predictions: Tensor) -> Tensor:
        """The softmax, which is also the mean of belief matching's Dirichlet, or that of MC-dropout."""
        if not self.mc_dropout or self.head is None:
            return super().distribution(features, predictions)
        return _mc_dropout_probabilities(features, self.head, self.mc_dropout)


@torch.no_grad()
def _mc_dropout_probabilities(features: Tensor, head: Callable[[Tensor], Tensor], p: float) -> Tensor:
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
