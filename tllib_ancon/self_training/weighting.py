"""How much each prediction counts in the temporal ensemble: the weights w of Eq. 2, as bool where they are 0 or 1."""

from __future__ import annotations

import torch
from torch import Tensor

from tllib_ancon.errors import unknown_name
from tllib_ancon.self_training import processes
from tllib_ancon.self_training.checks import choice, number
from tllib_ancon.self_training.options import CONVENTIONS, WEIGHTINGS
from tllib_ancon.self_training.precision import FixedPrecision


class Weighting(FixedPrecision):
    """Base of the weighting schemes; by itself weight 1 for every prediction.

    Attributes:
        threshold: a scalar buffer
        counts_votes: the weights are 0 or 1, as bool

    Inputs:
        - confidence: (B,) float32, max_k f_k, and 0 in rows that are not usable
        - usable: (B,) bool, the rows that are finite; the others get no weight and change nothing
        - probabilities: (B, K) float32, f

    Outputs: (B,) weights
    """

    counts_votes = True
    threshold: Tensor

    def __init__(self, threshold: float = 0.0):
        super().__init__()
        self.register_buffer("threshold", torch.tensor(threshold))

    def forward(self, confidence: Tensor, usable: Tensor, probabilities: Tensor) -> Tensor:
        return usable


class RelativeThreshold(Weighting):
    r"""Weight 1 for a prediction that is confident relative to a moving average, else 0 (Eq. 3).

    .. math::
        w_m(x) = 1(c(x; θ_m) > δ_m),  δ_m = β δ_{m-1} + (1 - β) \hat E[c(X; θ_m)]

    with the confidence c = max_k f_k and the batch mean as its expectation. δ is updated with a batch before
    the batch is compared with it. In a run of many processes (``torch.distributed``) the mean is over the batches of
    all, which are equally large.

    Args:
        beta (float): β in [0, 1). Default: 0.9
        convention (str): ``"authors"``: δ starts at the first batch's mean and a confidence equal to δ passes.
            ``"paper"``: δ starts at 0, so that δ_0 = (1 - β) times the mean, and only a greater confidence passes.

    Inputs and outputs: as :class:`Weighting`

    Source: Joo & Klabjan, NeurIPS 2024, Section 3.2; the convention ``"authors"`` is that of their code.
    """

    def __init__(self, beta: float = 0.9, convention: str = "authors"):
        super().__init__(0.0 if convention == "paper" else torch.nan)
        self.beta = number("beta", beta, at_least=0, below=1)
        self.convention = choice("convention", convention, CONVENTIONS)

    def forward(self, confidence: Tensor, usable: Tensor, probabilities: Tensor) -> Tensor:
        if not len(confidence):
            return usable
        threshold, count = self.threshold, processes.total(usable.sum())
        mean = torch.where(count > 0, processes.total(confidence.sum()) / count, threshold)
        before = torch.where(threshold >= 0, threshold, mean)  # NaN: none yet
        torch.lerp(mean, before, self.beta, out=threshold)
        return confidence > threshold if self.convention == "paper" else confidence >= threshold


class FixedThreshold(Weighting):
    """Weight 1 for a confidence above a constant in [0, 1], else 0. Default: 0.9"""

    def __init__(self, value: float = 0.9):
        super().__init__(number("fixed_threshold", value, at_least=0, at_most=1))

    def forward(self, confidence: Tensor, usable: Tensor, probabilities: Tensor) -> Tensor:
        return confidence > self.threshold


class FixedQuantile(Weighting):
    """Weight 1 for a confidence at or above a quantile of its batch, in many processes of all batches, else 0 (appendix
    A.1 of the paper: 0.9)."""

    def __init__(self, quantile: float = 0.9):
        super().__init__(torch.nan)
        self.quantile = number("quantile", quantile, at_least=0, at_most=1)

    def forward(self, confidence: Tensor, usable: Tensor, probabilities: Tensor) -> Tensor:
        if not len(confidence):
            return usable
        found = processes.gather(confidence.masked_fill(~usable, torch.nan)).nanquantile(self.quantile)
        self.threshold.copy_(torch.where(found.isnan(), self.threshold, found))
        return (confidence >= self.threshold) & usable


class MaxProbability(Weighting):
    """Weight max_k f_k, "Maxprob" of the paper's ablation (appendix A.3)."""

    counts_votes = False

    def forward(self, confidence: Tensor, usable: Tensor, probabilities: Tensor) -> Tensor:
        return confidence


class Entropy(Weighting):
    """Weight exp(-H(f)), "Entropy" of the paper's ablation (appendix A.3); H in nats."""

    counts_votes = False

    def forward(self, confidence: Tensor, usable: Tensor, probabilities: Tensor) -> Tensor:
        entropy: Tensor = torch.special.entr(probabilities).sum(1)
        return entropy.neg().exp().masked_fill(~usable, 0)


def create_weighting(
    name: str = "relative",
    beta: float = 0.9,
    convention: str = "authors",
    quantile: float = 0.9,
    fixed_threshold: float = 0.9,
) -> Weighting:
    """The weighting scheme of that name.

    Raises:
        UserError: a name that is not among ``WEIGHTINGS``, or a parameter out of range
    """
    match name:
        case "relative":
            return RelativeThreshold(beta, convention)
        case "quantile":
            return FixedQuantile(quantile)
        case "fixed":
            return FixedThreshold(fixed_threshold)
        case "uniform":
            return Weighting()
        case "max-probability":
            return MaxProbability()
        case "entropy":
            return Entropy()
    raise unknown_name("weighting", name, WEIGHTINGS)
