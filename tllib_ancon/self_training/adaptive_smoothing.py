"""AnCon without λ: each sample's votes decide its weight, and all samples' targets the weight of a class."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tllib_ancon.errors import UserError, unknown_name
from tllib_ancon.self_training import processes
from tllib_ancon.self_training.checks import check_logits, finite_rows
from tllib_ancon.self_training.class_prior import estimate_class_prior
from tllib_ancon.self_training.ensemble import TemporalEnsemble
from tllib_ancon.self_training.options import CLASS_PRIORS
from tllib_ancon.self_training.precision import FixedPrecision
from tllib_ancon.self_training.pseudo_label import one_hot

LARGEST_MASS = 3.0
"""Of a target: the most that a sample of a rare class counts."""


class AdaptiveSmoothing(FixedPrecision):
    r"""A pseudo-label that needs no λ: the method ``ancon-auto``. Not in the paper; see
    ``benchmarks/results/do_no_harm.md``.

    The prediction of this visit counts as one more vote beside the sample's Q(x) confident votes v(x):

    .. math::
        t(x) = (1 - λ(x)) E_1(ŷ(x)) + λ(x) v(x) / Q(x) = (E_1(ŷ(x)) + v(x)) / (1 + Q(x)),   λ(x) = Q(x) / (1 + Q(x))

    and each class counts by its prior ρ relative to its share π of such targets, a moving average that starts at ρ:

    .. math::
        ỹ_k(x) = t_k(x) ρ_k / π_k,   π ← β π + (1 - β) mean_batch t

    The mass of a target is at most 3. Classes that take over lose their weight, which is what keeps self-training from
    collapsing. With ρ = 1 / K, the default here, classes are drawn towards equal shares, which does harm where they are
    far from balanced in truth; the methods ``…ancon-auto`` estimate ρ by default.

    In evaluation mode a visit changes nothing. A row with NaN or infinity changes neither votes nor π.

    Args:
        num_samples (int): N, images of the whole target set
        num_classes (int): K
        beta (float): decay β of the confidence's and of the shares' moving average. Default: 0.9
        class_prior: ``"uniform"``; ``"estimate"``: by
            :func:`~tllib_ancon.self_training.class_prior.estimate_class_prior` from the pass that :meth:`initialize`
            takes before the first visit; or the prior itself, K numbers of at least 0, which are divided by their sum.
            Default: ``"uniform"``
        prior_shrinkage (float, optional): s of the estimate. Default: by the predictions' reliability
        weighting, prediction, temperature, storage, quantile, fixed_threshold: as
            :class:`~tllib_ancon.self_training.TemporalEnsemble` has them

    Inputs: those of :class:`~tllib_ancon.self_training.AnchoredConfidence`

    Outputs: targets ỹ (B, K) float32 of a mass in [0, 3]

    Raises:
        UserError: shapes that do not fit, an index out of range, a parameter out of range, a visit before the pass
            that the estimate needs
    """

    relative_prior: Tensor
    shares: Tensor

    def __init__(
        self,
        num_samples: int,
        num_classes: int,
        beta: float = 0.9,
        class_prior: str | Sequence[float] | Tensor = "uniform",
        prior_shrinkage: float | None = None,
        *,
        weighting: str = "relative",
        prediction: str = "hard",
        temperature: float = 1.0,
        storage: str = "auto",
        quantile: float = 0.9,
        fixed_threshold: float = 0.9,
    ):
        super().__init__()
        self.ensemble = TemporalEnsemble(
            num_samples,
            num_classes,
            beta=beta,
            weighting=weighting,
            prediction=prediction,
            temperature=temperature,
            storage=storage,
            quantile=quantile,
            fixed_threshold=fixed_threshold,
        )
        self.beta = beta
        self.prior_shrinkage = prior_shrinkage
        self.refresh = "start" if isinstance(class_prior, str) and class_prior == "estimate" else None
        self.register_buffer("relative_prior", _relative_prior(class_prior, num_classes))
        self.register_buffer("shares", self.relative_prior / num_classes)
        self._known_to_be_estimated = self.refresh is None

    @property
    def prior(self) -> Tensor:
        """ρ, (K,); NaN before the pass that it is estimated from."""
        return self.relative_prior / len(self.relative_prior)

    @property
    def threshold(self) -> Tensor:
        """δ, a scalar tensor."""
        return self.ensemble.threshold

    @property
    def ignored(self) -> Tensor:
        """Rows with NaN or infinity so far, which did not vote: an int64 scalar."""
        return self.ensemble.ignored

    @torch.no_grad()
    def initialize(self, indices: Tensor, features: Tensor, logits: Tensor) -> None:
        """Estimate ρ from one evaluation pass, of which only the logits (M, K) are read."""
        check_logits(logits)
        prior = estimate_class_prior(logits.float().softmax(1), shrinkage=self.prior_shrinkage)
        if prior.shape != self.shares.shape:
            raise UserError(f"logits have shape {tuple(logits.shape)}; expected (N, {len(self.shares)})")
        self.relative_prior.copy_(prior * len(prior))
        self.shares.copy_(prior)

    @torch.no_grad()
    def forward(
        self,
        indices: Tensor,
        logits: Tensor,
        pseudo_labels: Tensor | None = None,
        probabilities: Tensor | None = None,
    ) -> Tensor:
        self._require_prior()
        votes: Tensor = self.ensemble(indices, logits, probabilities)
        labels = logits.argmax(1) if pseudo_labels is None else pseudo_labels
        counted = votes + one_hot(labels, logits.shape[1])
        targets = counted / counted.sum(1, keepdim=True)
        if self.training:
            self._move_shares(targets, finite_rows(logits))
        tiny = torch.finfo(targets.dtype).tiny
        weighted = targets * self.relative_prior / (len(self.shares) * self.shares).clamp(min=tiny)
        mass = weighted.sum(1, keepdim=True)
        return weighted * (mass.clamp(max=LARGEST_MASS) / mass.clamp(min=tiny))

    def _move_shares(self, targets: Tensor, usable: Tensor) -> None:
        """π ← β π + (1 - β) mean of the usable rows of all processes; as it was where there is none."""
        targets = targets.masked_fill(~usable[:, None], 0)
        means = processes.mean(torch.cat([targets.mean(0), usable.float().mean(0, keepdim=True)]))
        moved = self.shares.mul(self.beta).add(means[:-1] / means[-1], alpha=1 - self.beta)
        self.shares.copy_(torch.where(means[-1] > 0, moved, self.shares))

    def _require_prior(self) -> None:
        """Reading the buffer stalls a device, so that it is done once only."""
        if not self._known_to_be_estimated:
            if bool(self.relative_prior.isnan().any().item()):
                raise UserError(
                    "the class prior has not been estimated yet: call initialize(indices, features, logits) with one "
                    "evaluation pass before the first step"
                )
            self._known_to_be_estimated = True


def _relative_prior(given: str | Sequence[float] | Tensor, num_classes: int) -> Tensor:
    """K ρ, (K,) float32: 1 for equal classes, NaN where it has to be estimated first."""
    if isinstance(given, str):
        if given not in CLASS_PRIORS:
            raise unknown_name("class_prior", given, CLASS_PRIORS)
        return torch.full((num_classes,), 1.0 if given == "uniform" else torch.nan)
    prior = torch.as_tensor(given, dtype=torch.float32)
    if prior.shape != (num_classes,) or not prior.isfinite().all() or (prior < 0).any() or not prior.any():
        raise UserError(f"`class_prior` must be {num_classes} numbers of at least 0, one a class, not all of them 0")
    return num_classes * prior / prior.sum()
