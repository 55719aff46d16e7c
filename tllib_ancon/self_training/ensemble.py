"""The generalised temporal ensemble f̄: what a sample's earlier, confident predictions said."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tllib_ancon.errors import UserError
from tllib_ancon.self_training.checks import check_visit
from tllib_ancon.self_training.votes import create_votes
from tllib_ancon.self_training.weighting import create_weighting


class TemporalEnsemble(nn.Module):
    r"""Per sample, the weighted sum of its predictions over training (Eq. 2–3).

    .. math::
        f̄_k(x) = Σ_i w_i(x) p(y = k | x, θ_i)

    with w from a weighting scheme (by default 1 where the confidence reaches its moving average, else 0) and p
    the hard prediction. The weights are not normalised, as in the paper's implementation, unless asked otherwise.

    Args:
        num_samples (int): N, images of the whole target set
        num_classes (int): K
        beta (float): decay β of the confidence's moving average, in [0, 1). Default: 0.9
        convention (str): ``"authors"`` (their code): a visit reads f̄ and then adds its own prediction.
            ``"paper"`` (Eq. 2–3): it adds its prediction and then reads. See also
            :class:`~tllib_ancon.self_training.weighting.RelativeThreshold`. Default: ``"authors"``
        weighting (str): ``relative``, ``entropy``, ``max-probability``, ``quantile``, ``fixed``
            or ``uniform``. Default: ``relative``
        prediction (str): ``"hard"`` (one-hot of the largest logit) or ``"soft"`` (softmax). Default: ``"hard"``
        temperature (float): of the soft prediction's softmax, above 0. Default: 1
        normalize (bool): divide f̄ by the sample's votes, so that it is a distribution where there is a vote, and 0
            where there is none. Default: False
        storage (str): ``"dense"``, ``"sparse"`` or ``"auto"``. Default: ``"auto"``
        quantile (float), fixed_threshold (float): of the weightings of these names

    Inputs:
        - indices: (B,) int64 or int32 in [0, N), best left on the CPU; one call is one visit of each
        - logits: (B, K) of any floating type
        - probabilities (optional): (B, K) a predictive distribution to weigh by instead of softmax(logits), e.g.
          that of MC-dropout

    Outputs: f̄ (B, K) float32

    Raises:
        UserError: shapes that do not fit, an index out of range, a parameter out of range

    Source: Joo & Klabjan, NeurIPS 2024, Section 3.2.
    """

    def __init__(
        self,
        num_samples: int,
        num_classes: int,
        beta: float = 0.9,
        convention: str = "authors",
        weighting: str = "relative",
        prediction: str = "hard",
        temperature: float = 1.0,
        normalize: bool = False,
        storage: str = "auto",
        quantile: float = 0.9,
        fixed_threshold: float = 0.9,
    ):
        super().__init__()
        if prediction not in ("hard", "soft"):
            raise UserError(f"prediction={prediction!r}: expected 'hard' or 'soft'")
        if temperature <= 0:
            raise UserError(f"temperature={temperature}: expected a value above 0")
        self.num_samples = num_samples
        self.num_classes = num_classes
        self.convention = convention
        self.prediction = prediction
        self.temperature = temperature
        self.normalize = normalize
        self.weighting = create_weighting(weighting, beta, convention, quantile, fixed_threshold)
        soft = prediction == "soft"
        weighted = soft or not self.weighting.counts_votes
        self.store = create_votes(num_samples, num_classes, "dense" if soft else storage, weighted)
        self._weights: Tensor | None = None

    @property
    def threshold(self) -> Tensor:
        """δ, a scalar; NaN before the first visit where it starts at the first batch's mean."""
        return self.weighting.threshold

    @property
    def vote_share(self) -> Tensor:
        """Share of the last visit's predictions that were added, a scalar; 0 before the first visit."""
        return torch.tensor(0.0) if self._weights is None else (self._weights > 0).float().mean()

    def votes(self, indices: Tensor) -> Tensor:
        """f̄ of these samples before normalisation, (B, K) float32."""
        return self.store.read(indices)

    def read(self, indices: Tensor) -> Tensor:
        """f̄ of these samples, (B, K) float32, normalised where this ensemble is."""
        votes = self.votes(indices)
        if not self.normalize:
            return votes
        return votes / votes.sum(1, keepdim=True).clamp(min=torch.finfo(votes.dtype).tiny)

    @torch.no_grad()
    def update(self, indices: Tensor, logits: Tensor, probabilities: Tensor | None = None) -> None:
        """Add the prediction that ``logits`` make for these samples, as far as it is confident."""
        check_visit(indices, logits, self.num_samples, self.num_classes)
        self._add(indices, logits, probabilities)

    def _add(self, indices: Tensor, logits: Tensor, probabilities: Tensor | None) -> None:
        if probabilities is not None and probabilities.shape != logits.shape:
            raise UserError(f"probabilities have shape {tuple(probabilities.shape)}; expected {tuple(logits.shape)}")
        logits = logits.float()
        weights = self.weighting(logits.softmax(1) if probabilities is None else probabilities.float())
        self._weights = weights
        if self.prediction == "hard":
            self.store.add(indices, logits.argmax(1), weights)
        else:
            prediction = (logits / self.temperature).softmax(1)
            self.store.add_distributions(indices, weights[:, None] * prediction)

    @torch.no_grad()
    def forward(self, indices: Tensor, logits: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """One visit of these samples: f̄ in the convention's order of reading and adding."""
        check_visit(indices, logits, self.num_samples, self.num_classes)
        if self.convention == "paper":
            self._add(indices, logits, probabilities)
            return self.read(indices)
        ensemble = self.read(indices)
        self._add(indices, logits, probabilities)
        return ensemble
