"""The generalised temporal ensemble f̄ of a sample's earlier, confident predictions."""

from __future__ import annotations

import warnings
from typing import Literal

import torch
from torch import Tensor

from tllib_ancon.config.arguments import validated
from tllib_ancon.config.types import BelowOne, Number, Positive, Share
from tllib_ancon.runtime import processes
from tllib_ancon.self_training.checks import PROBABILITIES, FixedPrecision, are_probabilities, check_tensor, check_visit

Convention = Literal["authors", "paper"]
WeightingScheme = Literal["relative", "entropy", "max-probability", "quantile", "fixed", "uniform"]
VotePrediction = Literal["hard", "soft"]


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
        num_samples, num_classes (int): N images of the whole target set, K classes
        beta (float): decay β of the confidence's moving average, in [0, 1). Default: 0.9
        convention (str): ``"authors"`` (their code): a visit reads f̄ and then adds its own prediction.
            ``"paper"`` (Eq. 2–3): it adds its prediction and then reads. See also :class:`Weighting`. Default:
            ``"authors"``
        weighting (str): ``relative``, ``entropy``, ``max-probability``, ``quantile``, ``fixed``
            or ``uniform``. Default: ``relative``
        prediction (str): ``"hard"`` (one-hot of the largest logit) or ``"soft"`` (softmax). Default: ``"hard"``
        temperature (float): of the soft prediction's softmax, above 0. Default: 1
        normalize (bool): divide f̄ by the sample's votes, so that it is a distribution where there is a vote, and 0
            where there is none. Default: False
        quantile (float), fixed_threshold (float): of the weightings of these names

    Inputs: those of :class:`~tllib_ancon.self_training.AnchoredConfidence` but for ``pseudo_labels``

    Outputs: f̄ (B, K) float32

    Attributes:
        counts: (N, K) votes so far: int16, at most 32,767 for a class; float32 where votes are weighted
        ignored: int64 scalar, rows that were not finite so far

    Source: Joo & Klabjan, NeurIPS 2024, Section 3.2.
    """

    ignored: Tensor
    counts: Tensor

    @validated
    def __init__(  # noqa: PLR0913
        self,
        num_samples: Number,
        num_classes: Number,
        beta: BelowOne = 0.9,
        convention: Convention = "authors",
        weighting: WeightingScheme = "relative",
        prediction: VotePrediction = "hard",
        temperature: Positive = 1.0,
        normalize: bool = False,
        quantile: Share = 0.9,
        fixed_threshold: Share = 0.9,
    ):
        super().__init__()
        self.sizes = num_samples, num_classes
        self.convention = convention
        self.temperature = temperature
        self.normalize = normalize
        self.soft = prediction == "soft"
        self.weighting = Weighting(weighting, beta, convention, quantile, fixed_threshold)
        weighted = self.soft or weighting in ("max-probability", "entropy")
        dtype = torch.float32 if weighted else torch.int16
        self.register_buffer("counts", torch.zeros(num_samples, num_classes, dtype=dtype))
        self.register_buffer("ignored", torch.tensor(0))
        self.last_weights = torch.zeros(1)  # of the last visit's predictions
        self.has_checked_logits = False  # that they are no probabilities: once, as the check stalls a device

    @property
    def threshold(self) -> Tensor:
        """δ, a scalar; NaN before the first visit where it starts at the first batch's mean."""
        return self.weighting.threshold

    @property
    def vote_share(self) -> Tensor:
        """The share of the last visit's predictions that voted, a scalar; 0 before the first visit."""
        return (self.last_weights > 0).float().mean()

    def votes(self, indices: Tensor) -> Tensor:
        """f̄ of these samples before normalisation, (B, K) float32."""
        return self.counts.index_select(0, indices.to(self.counts.device, non_blocking=True)).float()

    def read(self, indices: Tensor) -> Tensor:
        """f̄ of these samples, (B, K) float32, normalised where this ensemble is."""
        votes = self.votes(indices)
        if not self.normalize:
            return votes
        return votes / votes.sum(1, keepdim=True).clamp(min=torch.finfo(votes.dtype).tiny)

    @torch.no_grad()
    def forward(self, indices: Tensor, logits: Tensor, probabilities: Tensor | None = None) -> Tensor:
        """One visit of these samples: f̄ in the convention's order of reading and adding."""
        check_visit(indices, logits, self.sizes)
        rows = indices.to(self.counts.device, non_blocking=True)
        before = self.read(rows)
        if self.training:
            self._add(rows, logits, probabilities)
        if self.convention == "paper":
            return self.read(rows)
        return before

    def _add(self, rows: Tensor, logits: Tensor, probabilities: Tensor | None) -> None:
        """Add the confident predictions of the samples in these rows."""
        if probabilities is not None:
            check_tensor("probabilities", probabilities, logits.shape)
        wide_logits = logits.float()
        if not self.has_checked_logits and are_probabilities(wide_logits):
            warnings.warn(PROBABILITIES, stacklevel=4)
        self.has_checked_logits = True
        distribution = wide_logits.softmax(1) if probabilities is None else probabilities.float()
        confidence = distribution.amax(1)
        largest, labels = wide_logits.max(1)
        usable = (largest < torch.inf) & (confidence < torch.inf)  # not with NaN either
        ignored = ~usable
        self.ignored += ignored.sum()
        weights: Tensor = self.weighting(confidence.masked_fill(ignored, 0), usable, distribution)
        self.last_weights = weights
        if self.soft:
            prediction = (wide_logits / self.temperature).softmax(1)
            votes = (weights[:, None] * prediction).masked_fill(ignored[:, None], 0)
            self.counts.index_put_((rows,), votes, accumulate=True)
        else:
            # not index_put_, for which a GPU sorts the indices
            cells = torch.add(labels, rows, alpha=self.counts.shape[1])
            self.counts.view(-1).scatter_add_(0, cells, weights.to(self.counts.dtype))


class Weighting(FixedPrecision):
    r"""How much each prediction counts: the weights w of Eq. 2, as bool where they are 0 or 1.

    With the confidence c = max_k f_k, by scheme:

    - ``relative`` (Eq. 3): 1 where c is above its moving average :math:`δ_m = β δ_{m-1} + (1 - β) \hat E[c(X; θ_m)]`,
      else 0, with the batch mean as the expectation. The update with a batch precedes its comparison. By the authors'
      convention δ starts at the first batch's mean and a confidence equal to δ passes. By the paper's it starts at 0,
      so that δ_0 = (1 - β) times the mean, and only a greater one passes

    - ``fixed``: 1 where c is above a constant; ``quantile``: at or above a quantile of its batch (appendix A.1)

    - ``max-probability``: c; ``entropy``: exp(-H(f)) in nats (appendix A.3); ``uniform``: 1

    In a run of many processes (``torch.distributed``) mean and quantile are over the batches of all, equally large.

    A call takes c (B,), 0 in rows that are not finite, which rows are (B,) and f (B, K), and gives weights (B,).
    """

    threshold: Tensor

    def __init__(self, scheme: str, beta: float, convention: str, quantile: float, fixed_threshold: float):
        super().__init__()
        self.scheme = scheme
        self.beta = beta
        self.convention = convention
        self.quantile = quantile
        self.register_buffer("threshold", torch.tensor(self._first_threshold(fixed_threshold)))

    def _first_threshold(self, fixed_threshold: float) -> float:
        """δ before the first visit; NaN where the first batch decides it."""
        if self.scheme == "fixed":
            return fixed_threshold
        if self.scheme == "quantile" or (self.scheme == "relative" and self.convention == "authors"):
            return torch.nan
        return 0.0

    def forward(self, confidence: Tensor, usable: Tensor, probabilities: Tensor) -> Tensor:
        if self.scheme == "uniform" or not len(confidence):
            return usable
        if self.scheme == "fixed":
            return confidence > self.threshold
        if self.scheme == "max-probability":
            return confidence
        if self.scheme == "entropy":
            entropy: Tensor = torch.special.entr(probabilities).sum(1)
            return entropy.neg().exp().masked_fill(~usable, 0)
        if self.scheme == "quantile":
            return self._above_quantile(confidence, usable)
        return self._above_moving_average(confidence, usable)

    def _above_quantile(self, confidence: Tensor, usable: Tensor) -> Tensor:
        quantile = processes.gather(confidence.masked_fill(~usable, torch.nan)).nanquantile(self.quantile)
        self.threshold.copy_(torch.where(quantile.isnan(), self.threshold, quantile))
        return (confidence >= self.threshold) & usable

    def _above_moving_average(self, confidence: Tensor, usable: Tensor) -> Tensor:
        count = processes.total(usable.sum())
        mean = torch.where(count > 0, processes.total(confidence.sum()) / count, self.threshold)
        before = torch.where(self.threshold >= 0, self.threshold, mean)  # NaN: none yet
        torch.lerp(mean, before, self.beta, out=self.threshold)
        if self.convention == "paper":
            return confidence > self.threshold
        return confidence >= self.threshold
