"""The generalised temporal ensemble f̄ of a sample's earlier, confident predictions."""

import warnings
from typing import Annotated, Literal

import torch
from torch import Tensor

from tllib_ancon.config.arguments import validated
from tllib_ancon.config.settings import Flag
from tllib_ancon.config.types import BelowOne, NotNegative, Number, Share
from tllib_ancon.runtime import processes
from tllib_ancon.self_training.checks import FixedPrecision, check_tensor, check_visit

Convention = Literal["authors", "paper"]
Weighting = Annotated[
    Literal["relative", "entropy", "max-probability"] | Share, Flag(metavar="relative|entropy|max-probability|X")
]

PROBABILITIES = (
    "the logits look like probabilities (each row lies in [0, 1] and sums to 1): give what the network returns before "
    "its softmax"
)


class TemporalEnsemble(FixedPrecision):
    r"""Per sample, the weighted sum of its predictions over training (Eq. 2–3).

    .. math::
        f̄_k(x) = Σ_i w_i(x) p(y = k | x, θ_i)

    with w from a weighting scheme (by default 1 where the confidence reaches its moving average, else 0) and p
    the hard prediction. The weights are not normalised, as in the paper's implementation, unless asked otherwise:
    ``convention="paper"`` with ``normalize=True`` is Eq. 2–3 to the letter, where w lies in the simplex.

    Weighting schemes, with the confidence :math:`c = max_k f_k`:

    - ``"relative"`` (Eq. 3): 1 where c reaches δ, its moving average :math:`δ_m = β δ_{m-1} + (1 - β) \hat E[c]`, with
      the mean over a batch as the expectation. The update with a batch precedes its comparison. By the authors'
      convention δ starts at the first batch's mean and a confidence equal to δ passes. By the paper's it starts at 0,
      so that δ_0 = (1 - β) times the mean, and only a greater one passes

    - a number: 1 where c is above it, so that with 0 every prediction votes

    - ``"max-probability"``: c; ``"entropy"``: exp(-H(f)) in nats (appendix, "Algorithmic design choices")

    In evaluation mode a visit reads f̄ and changes nothing, as batch-norm's statistics do not change there. A row with
    NaN or infinity gets no vote, leaves δ as it is, and is counted. In a run of many processes
    (``torch.distributed``) the mean is over the batches of all.

    Args:
        num_samples, num_classes (int): N images of the whole target set, K classes
        beta (float): decay β of the confidence's moving average, in [0, 1). Default: 0.9
        convention (str): ``"authors"`` (their code): a visit reads f̄ and then adds its own prediction.
            ``"paper"`` (Eq. 2–3): it adds its prediction and then reads. Default: ``"authors"``
        weighting (str or float): ``"relative"``, ``"entropy"``, ``"max-probability"`` or a number in [0, 1]. Default:
            ``"relative"``
        temperature (float): T of the soft prediction softmax(logits / T); 0, its limit, is the hard prediction, one-hot
            of the largest logit. Default: 0
        normalize (bool): divide f̄ by the sample's votes, so that it is a distribution where there is a vote, and 0
            where there is none. Default: False

    Inputs: those of :class:`~tllib_ancon.self_training.AnchoredConfidence` but for ``pseudo_labels``

    Outputs: f̄ (B, K) float32

    Attributes:
        counts: (N, K) votes so far: int16, at most 32,767 for a class; float32 where votes are weighted
        threshold: δ, a scalar; NaN before the first visit where it starts at the first batch's mean
        ignored: int64 scalar, rows that were not finite so far

    Source: Joo & Klabjan, NeurIPS 2024, Section 3.2.
    """

    counts: Tensor
    threshold: Tensor
    ignored: Tensor

    @validated
    def __init__(
        self,
        num_samples: Number,
        num_classes: Number,
        beta: BelowOne = 0.9,
        convention: Convention = "authors",
        weighting: Weighting = "relative",
        temperature: NotNegative = 0.0,
        normalize: bool = False,
    ):
        super().__init__()
        self.sizes = num_samples, num_classes
        self.beta = beta
        self.convention = convention
        self.weighting = weighting
        self.temperature = temperature
        self.normalize = normalize
        weighted = temperature > 0 or weighting in ("max-probability", "entropy")
        dtype = torch.float32 if weighted else torch.int16
        self.register_buffer("counts", torch.zeros(num_samples, num_classes, dtype=dtype))
        self.register_buffer("threshold", torch.tensor(_first_threshold(weighting, convention)))
        self.register_buffer("ignored", torch.tensor(0))
        self.last_weights = torch.zeros(1)  # of the last visit's predictions
        self.has_checked_logits = False  # that they are no probabilities: once, as the check stalls a device

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
        if not self.has_checked_logits and _are_probabilities(wide_logits):
            warnings.warn(PROBABILITIES, stacklevel=4)
        self.has_checked_logits = True
        distribution = wide_logits.softmax(1) if probabilities is None else probabilities.float()
        largest, labels = wide_logits.max(1)
        usable = (largest < torch.inf) & (distribution.amax(1) < torch.inf)  # not with NaN either
        self.ignored += (~usable).sum()
        self.last_weights = self._weights(distribution, usable)
        if self.temperature > 0:
            prediction = (wide_logits / self.temperature).softmax(1)
            votes = (self.last_weights[:, None] * prediction).masked_fill(~usable[:, None], 0)
            self.counts.index_put_((rows,), votes, accumulate=True)
        else:
            # not index_put_, for which a GPU sorts the indices
            cells = torch.add(labels, rows, alpha=self.counts.shape[1])
            self.counts.view(-1).scatter_add_(0, cells, self.last_weights.to(self.counts.dtype))

    def _weights(self, distribution: Tensor, usable: Tensor) -> Tensor:
        """w (B,) of these rows of f (B, K), as bool where they are 0 or 1; 0 where a row is not usable."""
        confidence = distribution.amax(1).masked_fill(~usable, 0)
        if self.weighting == "max-probability":
            return confidence
        if self.weighting == "entropy":
            entropy: Tensor = torch.special.entr(distribution).sum(1)
            return entropy.neg().exp().masked_fill(~usable, 0)
        if self.weighting == "relative":
            self._move_threshold(confidence, usable)
            if self.convention == "authors":
                return confidence >= self.threshold
        return confidence > self.threshold

    def _move_threshold(self, confidence: Tensor, usable: Tensor) -> None:
        count = processes.total(usable.sum())
        mean = torch.where(count > 0, processes.total(confidence.sum()) / count, self.threshold)
        before = torch.where(self.threshold >= 0, self.threshold, mean)  # NaN: none yet
        torch.lerp(mean, before, self.beta, out=self.threshold)


def _first_threshold(weighting: str | float, convention: str) -> float:
    """δ before the first visit; NaN where the first batch decides it."""
    if isinstance(weighting, float):
        return weighting
    if weighting == "relative" and convention == "authors":
        return torch.nan
    return 0.0


def _are_probabilities(logits: Tensor) -> bool:
    """Whether each of several rows (B, K) lies in [0, 1] and sums to 1."""
    bounded = (logits >= 0).all() & ((logits.sum(1) - 1).abs() < 1e-3).all()
    return logits.numel() > len(logits) and bool(bounded)
