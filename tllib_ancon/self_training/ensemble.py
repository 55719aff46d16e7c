"""The generalised temporal ensemble f̄: what a sample's earlier, confident predictions said."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from tllib_ancon.errors import UserError
from tllib_ancon.self_training.checks import check_visit, choice, number
from tllib_ancon.self_training.options import PREDICTIONS
from tllib_ancon.self_training.precision import FixedPrecision
from tllib_ancon.self_training.votes import DenseVotes, create_votes
from tllib_ancon.self_training.weighting import create_weighting


class TemporalEnsemble(FixedPrecision):
    r"""Per sample, the weighted sum of its predictions over training (Eq. 2–3).

    .. math::
        f̄_k(x) = Σ_i w_i(x) p(y = k | x, θ_i)

    with w from a weighting scheme (by default 1 where the confidence reaches its moving average, else 0) and p
    the hard prediction. The weights are not normalised, as in the paper's implementation, unless asked otherwise:
    ``convention="paper"`` with ``normalize=True`` is Eq. 2–3 to the letter, where w lies in the simplex.

    In evaluation mode a visit reads f̄ and changes nothing, as batch-norm's statistics do not change there. A row with
    NaN or infinity gets no vote, leaves δ as it is, and is counted.

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
        storage (str): ``"dense"``, ``"sparse"`` or ``"auto"``; soft predictions need dense. Default: ``"auto"``
        quantile (float), fixed_threshold (float): of the weightings of these names

    Inputs:
        - indices: (B,) int64 or int32 in [0, N), best left on the CPU; one call is one visit of each
        - logits: (B, K) of any floating type
        - probabilities (optional): (B, K) a predictive distribution to weigh by instead of softmax(logits), e.g.
          that of MC-dropout

    Outputs: f̄ (B, K) float32

    Attributes:
        ignored: int64 scalar, rows that were not finite so far

    Raises:
        UserError: shapes that do not fit, an index out of range, a parameter out of range

    Source: Joo & Klabjan, NeurIPS 2024, Section 3.2.
    """

    ignored: Tensor

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
        self.num_samples = num_samples
        self.num_classes = num_classes
        self.convention = convention
        self.prediction = choice("prediction", prediction, PREDICTIONS)
        self.temperature = number("temperature", temperature, above=0)
        self.normalize = normalize
        self.weighting = create_weighting(weighting, beta, convention, quantile, fixed_threshold)
        soft = prediction == "soft"
        if soft and storage == "sparse":
            raise UserError("`storage=sparse` keeps votes for single classes; leave it out with `prediction=soft`")
        weighted = soft or not self.weighting.counts_votes
        self.store = create_votes(num_samples, num_classes, "dense" if soft else storage, weighted)
        self.register_buffer("ignored", torch.tensor(0))
        self._weights: Tensor | None = None
        self._compared = False

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
        """Add the prediction that ``logits`` make for these samples, as far as it is confident, in any mode."""
        check_visit(indices, logits, self.num_samples, self.num_classes)
        self._add(indices, logits, probabilities)

    def _add(self, indices: Tensor, logits: Tensor, probabilities: Tensor | None) -> None:
        if probabilities is not None and probabilities.shape != logits.shape:
            raise UserError(f"probabilities have shape {tuple(probabilities.shape)}; expected {tuple(logits.shape)}")
        logits = logits.float()
        self._compare(logits)
        probabilities = logits.softmax(1) if probabilities is None else probabilities.float()
        confidence, (largest, labels) = probabilities.amax(1), logits.max(1)
        usable = (largest < torch.inf) & (confidence < torch.inf)  # not with NaN either
        ignored = ~usable
        self.ignored += ignored.sum()
        weights: Tensor = self.weighting(confidence.masked_fill(ignored, 0), usable, probabilities)
        self._weights = weights
        if self.prediction == "soft" and isinstance(self.store, DenseVotes):
            prediction = (logits / self.temperature).softmax(1)
            votes = (weights[:, None] * prediction).masked_fill(ignored[:, None], 0)
            self.store.add_distributions(indices, votes)
        else:
            self.store.add(indices, labels, weights)

    @torch.no_grad()
    def forward(self, indices: Tensor, logits: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """One visit of these samples: f̄ in the convention's order of reading and adding."""
        check_visit(indices, logits, self.num_samples, self.num_classes)
        if not self.training:
            return self.read(indices)
        if self.convention == "paper":
            self._add(indices, logits, probabilities)
            return self.read(indices)
        ensemble = self.read(indices)
        self._add(indices, logits, probabilities)
        return ensemble

    def _compare(self, logits: Tensor) -> None:
        """Warn, on the first visit alone, where logits are probabilities; later the comparison would stall a device."""
        if self._compared or not len(logits) or logits.shape[1] == 1:
            return
        self._compared = True
        if bool(((logits >= 0).all() & ((logits.sum(1) - 1).abs() < 1e-3).all()).item()):
            warnings.warn(
                "the logits look like probabilities (each row lies in [0, 1] and sums to 1): give what the network "
                "returns before its softmax",
                stacklevel=4,
            )
