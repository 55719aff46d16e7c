"""AnCon without λ: each sample's votes decide their weight. And how often each class occurs in the target."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from pydantic import BeforeValidator
from torch import Tensor, nn

from tllib_ancon.config.arguments import validated
from tllib_ancon.config.settings import Flag
from tllib_ancon.config.types import NotNegative, Number, Share
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.errors import BadSetting, NotFinite, named, reading, unknown_name
from tllib_ancon.self_training.anchored import SmoothedLabels, one_hot_labels
from tllib_ancon.self_training.checks import check_tensor, finite_rows
from tllib_ancon.self_training.ensemble import TemporalEnsemble
from tllib_ancon.self_training.method import Method, Visit, option, option_of
from tllib_ancon.self_training.pseudo_label import SelfTraining
from tllib_ancon.self_training.registry import register
from tllib_ancon.self_training.shot import SHOT, information_maximization
from tllib_ancon.self_training.voting import WithVotes

CLASS_PRIORS = ("uniform", "estimate")
LEAST_IMAGES_PER_CLASS = 10
"""That the moving average of the shares looks back on, so that among many classes no image makes its own share."""
DECAY = 0.9
"""Least decay of the moving average of the shares."""
STEP_OF_INFOMAX = 0.34
"""By which information maximisation of weight 1 lets a step change more, as a multiple of ``step_change``."""
STEP_WITHOUT_STATISTICS = 1 / 3
"""How much less a step may change where no batch-norm follows the target, as a multiple of ``step_change``."""
Numbers = tuple[NotNegative, ...]


class AdaptiveSmoothing(SmoothedLabels):
    r"""A pseudo-label that needs no λ: that of the method ``ancon-auto``. Not in the paper; see
    ``benchmarks/tried.md``.

    The prediction of this visit counts as one more vote beside the sample's Q(x) confident votes v(x):

    .. math::
        ỹ(x) = (1 - λ(x)) E_1(ŷ(x)) + λ(x) v(x) / Q(x) = (E_1(ŷ(x)) + v(x)) / (1 + Q(x)),   λ(x) = Q(x) / (1 + Q(x))

    In evaluation mode a visit changes nothing. A row with NaN or infinity changes no votes.

    Args:
        num_samples, num_classes (int): N images of the whole target set, K classes
        **ensemble: arguments of :class:`~tllib_ancon.self_training.TemporalEnsemble`

    Inputs: those of :class:`~tllib_ancon.self_training.AnchoredConfidence`

    Outputs: targets ỹ (B, K) float32 of mass 1
    """

    @validated
    def __init__(self, num_samples: Number, num_classes: Number, **ensemble: Any):
        super().__init__()
        self.ensemble = TemporalEnsemble(num_samples, num_classes, **ensemble)

    @torch.no_grad()
    def forward(
        self, indices: Tensor, logits: Tensor, pseudo_labels: Tensor | None = None, probabilities: Tensor | None = None
    ) -> Tensor:
        votes: Tensor = self.ensemble(indices, logits, probabilities)
        counted = votes + one_hot_labels(logits, pseudo_labels)
        return counted / counted.sum(1, keepdim=True)


class _ClassShares(nn.Module):
    """π, how often each class occurs in the target: the prior, or where it is estimated, a moving average that starts
    there.

    .. math::
        π ← b π + (1 - b) mean_batch ỹ,   b = max(0.9, 1 - B / (10 K))
    """

    prior: Tensor
    shares: Tensor

    def __init__(self, num_classes: int, class_prior: str | Sequence[float], prior_shrinkage: float):
        super().__init__()
        self.prior_shrinkage = prior_shrinkage
        self.refresh = "sample" if class_prior == "estimate" else None
        self.register_buffer("prior", _prior(class_prior, num_classes))
        self.register_buffer("shares", self.prior.clone())

    @torch.no_grad()
    def initialize(self, indices: Tensor, features: Tensor, logits: Tensor) -> None:
        """Estimate ρ from the logits (M, K) of one evaluation pass; indices and features are not read."""
        self.prior.copy_(estimate_class_prior(logits, self.prior_shrinkage))
        self.shares.copy_(self.prior)

    @torch.no_grad()
    def move(self, targets: Tensor, usable: Tensor) -> None:
        """Take the targets (B, K) of a batch, of rows (B, 1) that are usable, into the moving average."""
        if self.refresh is None or not self.training:
            return
        means = processes.mean(torch.cat([targets.masked_fill(~usable, 0).mean(0), usable.float().mean(0)]))
        share_of_usable = means[-1]
        batch_size = len(targets) * processes.world_size()
        decay = max(DECAY, 1 - batch_size / (LEAST_IMAGES_PER_CLASS * len(self.shares)))
        moved = self.shares.mul(decay).add(means[:-1] / share_of_usable, alpha=1 - decay)
        self.shares.copy_(torch.where(share_of_usable > 0, moved, self.shares))


def _prior(class_prior: str | Sequence[float], num_classes: int) -> Tensor:
    """ρ, (K,) float32, NaN where it has to be estimated first."""
    if isinstance(class_prior, str):
        if class_prior not in CLASS_PRIORS:
            raise unknown_name("class_prior", class_prior, CLASS_PRIORS)
        return torch.full((num_classes,), 1 / num_classes if class_prior == "uniform" else torch.nan)
    prior = torch.as_tensor(class_prior, dtype=torch.float32)
    if prior.shape != (num_classes,) or not prior.isfinite().all() or (prior < 0).any() or not prior.any():
        raise BadSetting(
            f"{named('class_prior')} must be {num_classes} numbers of at least 0, one a class, not all of them 0",
            setting="class_prior",
        )
    return prior / prior.sum()


@torch.no_grad()
@validated
def estimate_class_prior(probabilities: Tensor, shrinkage: Share = 0.25) -> Tensor:
    r"""Estimate the class prior, shrunk towards uniform.

    .. math::
        ρ = (1 - s) h + s / K

    with :math:`h_k` the share of the N samples whose most probable class is k. The second part is a hedge: the
    images alone cannot tell a rare class from one that the model misses, and no class is ruled out. Maximum
    likelihood (Saerens et al., 2002) trusts the model's probabilities, which are what a shift has spoilt; it is
    compared in ``benchmarks/tried.md``.

    Args:
        probabilities: (N, K) of any floating type, N at least 1; or logits
        shrinkage (float): s in [0, 1]. Default: 0.25

    Returns: (K,) float32 of sum 1 on the predictions' device

    Raises:
        UserError: other shapes, predictions that are not finite, a parameter out of range
    """
    check_tensor("probabilities", probabilities, ("N", "K"))
    if not len(probabilities) or not probabilities.isfinite().all():
        raise NotFinite("probabilities must be finite, and of one sample or more")
    num_samples, num_classes = probabilities.shape
    counts = torch.bincount(probabilities.argmax(1), minlength=num_classes)
    return counts * ((1 - shrinkage) / num_samples) + shrinkage / num_classes


def _numbers_of(class_prior: Any) -> Any:
    """The class prior that a file holds, as numbers between white space or commas; all else unchanged."""
    if not isinstance(class_prior, str) or class_prior in CLASS_PRIORS:
        return class_prior
    advice = f"{named('class_prior')} is uniform, estimate or a file with a number for each class"
    with reading(class_prior, "numbers", advice):
        words = Path(class_prior).read_text(encoding="utf-8").replace(",", " ").split()
        return tuple(map(float, words))


@register("+ancon-auto")
class _WithAnConAuto(WithVotes):
    """Smooth a method's pseudo-labels with its votes, without λ."""

    training_defaults: ClassVar = {"criterion": "last", "batch_norm": "mixed", "views": 2, "step_change": 0.05}

    def __init__(self, **sizes_and_options: Any):
        super().__init__(**sizes_and_options)
        self.adaptive = AdaptiveSmoothing(self.num_rows, self.num_classes, **self.ensemble_options())

    def targets(self, visit: Visit) -> Tensor:
        targets: Tensor = self.adaptive(visit.rows, visit.predictions, visit.labels, visit.probabilities)
        return targets


class _WithClassShares(Method):
    """Know how often each class occurs."""

    prior_shrinkage: float = option_of(
        estimate_class_prior, "shrinkage", help="share of equal classes in an estimated prior"
    )
    class_prior: Annotated[str | Numbers, BeforeValidator(_numbers_of), Flag(metavar="FILE|uniform|estimate")] = option(
        "estimate",
        help="how often each class occurs in the target: estimate (from the source model's predictions), uniform, or a "
        "file of K numbers in the order of the classes",
    )

    def __init__(self, **sizes_and_options: Any):
        super().__init__(**sizes_and_options)
        self.class_shares = _ClassShares(self.num_classes, self.class_prior, self.prior_shrinkage)

    @property
    def prior(self) -> Tensor:
        return self.class_shares.prior


@register("shot+ancon-auto")
class _SHOTWithAnConAuto(_WithAnConAuto, _WithClassShares, SHOT):
    """SHOT whose information maximisation draws the mean prediction to the class prior."""


@register("self-training+ancon-auto")
class _AnConAuto(_WithAnConAuto, _WithClassShares, SelfTraining):
    r"""Cross-entropy with adaptively smoothed targets, and with two views information maximisation.

    The targets are those of :class:`AdaptiveSmoothing`. With two views the loss is

    .. math::
        L = \frac{H(f(x), ỹ) + H(f(x'), ỹ)}{2} + c \, \mathrm{IM}(f(x), f(x'); π)

    with SHOT's information maximisation of both views together, whose mean prediction is drawn towards π, the class
    prior or, where it is estimated, the running class shares of the targets. One view has no such term: it would
    sharpen the very prediction that the label comes from. The rate is fitted to the whole loss, so that with two views
    a step may change predictions by 1 + 0.34 c times as much. Not in the paper; see ``benchmarks/tried.md``.

    Where no batch-norm follows the target, a shift spoils π, and training would follow it until few classes are left:
    π in the loss is then 1 / K, and a step may change a third as much. See ``benchmarks/tried.md``.
    """

    infomax_coefficient: float = option(
        1.0, ge=0, help="c of ancon-auto: weight of information maximisation, where training has two views"
    )

    def targets(self, visit: Visit) -> Tensor:
        targets = super().targets(visit)
        self.class_shares.move(targets, finite_rows(visit.predictions)[:, None])
        return targets

    def step_multiple(self, views: int) -> float:
        multiple = 1.0
        if views == 2:
            multiple += STEP_OF_INFOMAX * self.infomax_coefficient
        if not self.features_follow_target:
            multiple *= STEP_WITHOUT_STATISTICS
        return multiple

    def regularizer(self, visit: Visit) -> Tensor | float:
        if visit.second_logits is None:
            return 0.0
        logits_of_both_views = torch.cat([visit.logits, visit.second_logits])
        shares = self.class_shares.shares if self.features_follow_target else None
        return self.infomax_coefficient * information_maximization(logits_of_both_views, shares)
