"""How much each prediction counts in the temporal ensemble: the weights w of Eq. 2, as bool where they are 0 or 1."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tllib_ancon.errors import UserError, unknown_name
from tllib_ancon.self_training import processes
from tllib_ancon.self_training.options import CONVENTIONS, WEIGHTINGS


class RelativeThreshold(nn.Module):
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

    Inputs:
        - probabilities: (B, K) float32

    Outputs: (B,) bool, which votes

    Source: Joo & Klabjan, NeurIPS 2024, Section 3.2; the convention ``"authors"`` is that of their code.
    """

    counts_votes = True

    def __init__(self, beta: float = 0.9, convention: str = "authors"):
        super().__init__()
        if not 0 <= beta < 1:
            raise UserError(f"beta={beta}: expected a value in [0, 1)")
        if convention not in CONVENTIONS:
            raise unknown_name("convention", convention, CONVENTIONS)
        self.beta = beta
        self.convention = convention
        self.register_buffer("threshold", torch.tensor(0.0 if convention == "paper" else torch.nan))

    def forward(self, probabilities: Tensor) -> Tensor:
        confidence = probabilities.amax(1)
        if not len(confidence):
            return confidence.bool()
        mean = processes.mean(confidence.mean())
        threshold = self.threshold
        before = torch.where(threshold >= 0, threshold, mean)  # NaN: none yet
        torch.lerp(mean, before, self.beta, out=threshold)
        return confidence > threshold if self.convention == "paper" else confidence >= threshold


class FixedThreshold(nn.Module):
    """Weight 1 for a confidence above a constant in [0, 1], else 0. Default: 0.9"""

    counts_votes = True

    def __init__(self, value: float = 0.9):
        super().__init__()
        if not 0 <= value <= 1:
            raise UserError(f"fixed threshold {value}: expected a value in [0, 1]")
        self.register_buffer("threshold", torch.tensor(float(value)))

    def forward(self, probabilities: Tensor) -> Tensor:
        return probabilities.amax(1) > self.threshold


class FixedQuantile(nn.Module):
    """Weight 1 for a confidence at or above a quantile of its batch, in many processes of all batches, else 0 (appendix
    A.1 of the paper: 0.9)."""

    counts_votes = True

    def __init__(self, quantile: float = 0.9):
        super().__init__()
        if not 0 <= quantile <= 1:
            raise UserError(f"quantile {quantile}: expected a value in [0, 1]")
        self.quantile = quantile
        self.register_buffer("threshold", torch.tensor(torch.nan))

    def forward(self, probabilities: Tensor) -> Tensor:
        confidence = probabilities.amax(1)
        self.threshold.copy_(processes.gather(confidence).quantile(self.quantile))
        return confidence >= self.threshold


class Uniform(nn.Module):
    """Weight 1 for every prediction."""

    counts_votes = True

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("threshold", torch.tensor(0.0))

    def forward(self, probabilities: Tensor) -> Tensor:
        return torch.ones_like(probabilities[:, 0], dtype=torch.bool)


class MaxProbability(Uniform):
    """Weight max_k f_k, "Maxprob" of the paper's ablation (appendix A.3)."""

    counts_votes = False

    def forward(self, probabilities: Tensor) -> Tensor:
        return probabilities.amax(1)


class Entropy(Uniform):
    """Weight exp(-H(f)), "Entropy" of the paper's ablation (appendix A.3); H in nats."""

    counts_votes = False

    def forward(self, probabilities: Tensor) -> Tensor:
        return torch.special.entr(probabilities).sum(1).neg().exp()


def create_weighting(
    name: str = "relative",
    beta: float = 0.9,
    convention: str = "authors",
    quantile: float = 0.9,
    fixed_threshold: float = 0.9,
) -> nn.Module:
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
            return Uniform()
        case "max-probability":
            return MaxProbability()
        case "entropy":
            return Entropy()
    raise unknown_name("weighting", name, WEIGHTINGS)
