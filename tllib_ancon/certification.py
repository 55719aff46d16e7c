r"""Which of two models is better, decided from a few labels of the images on which they disagree.

Of N images, M have another class from the adapted model than from the start model. Let :math:`Y_i` be +1 if the adapted
model is right on disagreement i, -1 if the start model is, 0 if neither is. Where they agree nothing changes, so

.. math:: \Delta = \mathrm{acc}(\mathrm{adapted}) - \mathrm{acc}(\mathrm{start}) = \frac{1}{N} \sum_{i=1}^{M} Y_i
    = \frac{M}{N} \mu, \qquad \mu = \frac{1}{M} \sum_{i=1}^{M} Y_i.

The disagreements are labelled in random order. After each label :class:`DisagreementTest` may be asked for its verdict,
and one may stop whenever one likes: the probability that its verdict is ever false is at most :math:`\delta`.

Accuracies and their differences are shares of all N images here, not percents: 0.01 is one point.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tllib_ancon.errors import UserError

Floats = NDArray[np.float64]
Outcomes = NDArray[np.int8]
Verdict = Literal["better", "worse", "undecided"]

STAKES = (np.arange(32) + 0.5) / 32
"""The shares of its wealth that a bettor puts on each label."""
WEIGHTS = (1 - STAKES) / (1 - STAKES).sum()
"""What each of these bettors starts with: more for the small stakes, which small differences need."""

BISECTIONS = 40
"""Halvings of [-1, 1]: the ends of an interval are found to within 2^-39, on its outer side."""


class Interval(NamedTuple):
    """The differences of accuracy that the labels do not exclude, both ends included."""

    lower: float
    upper: float


class DisagreementTest:
    r"""Is the adapted model better than the start model? Valid whenever one stops.

    It tests two hypotheses at once, each at :math:`\delta / 2`:

    .. math:: H_{\mathrm{better}}: \Delta \le \mathrm{margin} \qquad H_{\mathrm{worse}}: \Delta \ge -\mathrm{margin}

    and says "better" or "worse" when the first or the second is rejected. The evidence against a hypothesis is the
    wealth of bettors who bet against it at odds that are fair or worse if it is true. With :math:`z = (1 + y) / 2`,

    .. math:: E_t = \sum_j w_j \prod_{s \le t} \Big( 1 - \theta_j + \theta_j \frac{z_s}{\eta_s} \Big),

    where :math:`\theta_j` (:data:`STAKES`) is the share of its wealth that bettor j stakes, :math:`w_j`
    (:data:`WEIGHTS`) what it starts with, and :math:`\eta_s` the largest expectation of :math:`z_s` given the labels
    before it that the hypothesis allows. For draws without replacement from M disagreements

    .. math:: \eta_s = \frac{1}{2} + \frac{N \cdot \mathrm{margin} - \sum_{r < s} y_r}{2 (M - s + 1)}

    clipped to [0, 1], and :math:`E_t = \infty` as soon as no labels of the remaining images can make the hypothesis
    true. For independent draws :math:`\eta_s = (1 + \mathrm{margin}) / 2`. Under the hypothesis E is a non-negative
    supermartingale that starts at 1, so that it ever reaches :math:`2 / \delta` with probability at most
    :math:`\delta / 2` (Ville's inequality).

    Args:
        delta (float): probability of a false verdict, in (0, 1). Default: 0.05
        margin (float): the difference of accuracy that does not matter, as a share of all images (0.01 is one point),
            in [0, 1). "better" means better by more than this. Default: 0
        disagreements (int, optional): M, from which outcomes are drawn without replacement
        images (int, optional): N. Without both, outcomes are independent draws from a population without end, and
            :math:`\Delta` is their mean: that of all images if the images were drawn from all

    Raises:
        UserError: ``delta`` or ``margin`` out of range, or counts that do not fit.

    Source: Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2024
    (arXiv 2010.09686), Sections 4 and 5; the mixture over stakes in place of one that adapts.
    """

    def __init__(
        self,
        delta: float = 0.05,
        margin: float = 0.0,
        *,
        disagreements: int | None = None,
        images: int | None = None,
    ):
        if not 0 < delta < 1:
            raise UserError(f"`delta` is the probability of a false verdict, above 0 and below 1, got {delta}")
        if not 0 <= margin < 1:
            raise UserError(
                f"`margin` is a share of all images, at least 0 and below 1 (0.01: one point), got {margin}"
            )
        self.delta = delta
        self.margin = margin
        self._population = _population(disagreements, images)
        self._bound = self._population.bound(margin)
        self._outcomes: list[int] = []
        self._curves: tuple[Floats, Floats] | None = None

    def update(self, outcome: int) -> None:
        """One more label.

        Args:
            outcome (int): +1 if the adapted model is right, -1 if the start model is, 0 if neither is

        Raises:
            UserError: another value, or a label after all M disagreements have theirs.
        """
        if outcome not in (-1, 0, 1):
            raise UserError(f"an outcome is 1 (adapted right), -1 (start right) or 0 (neither), got {outcome!r}")
        if self.remaining == 0:
            raise UserError(f"all {len(self._outcomes)} disagreements have their label; there is no further one")
        self._outcomes.append(int(outcome))
        self._curves = None

    @property
    def outcomes(self) -> tuple[int, ...]:
        """The labels so far, in their order."""
        return tuple(self._outcomes)

    @property
    def remaining(self) -> int | None:
        """Disagreements without a label; None if there is no end of them."""
        return self._population.remaining(self._array)

    @property
    def threshold(self) -> float:
        """The e-value at which a verdict falls: 2 / δ."""
        return 2 / self.delta

    @property
    def e_better(self) -> float:
        """Evidence that the difference exceeds the margin, in [0, ∞]; 1 before the first label."""
        return _last_exp(self.log_curves[0])

    @property
    def e_worse(self) -> float:
        """Evidence that the difference lies below minus the margin, in [0, ∞]; 1 before the first label."""
        return _last_exp(self.log_curves[1])

    @property
    def log_curves(self) -> tuple[Floats, Floats]:
        """log ``e_better`` and log ``e_worse`` after each label, two arrays (T,)."""
        if self._curves is None:
            self._curves = self.log_e_values(self._array)
        return self._curves

    @property
    def verdict(self) -> Verdict:
        """What the labels have decided. It stays, unless later labels prove it false. With all M known it is exact, and
        "undecided" then says that the difference is within the margin."""
        never = len(self._outcomes)
        better, worse = (int(first_at(curve, math.log(self.threshold), never)) for curve in self.log_curves)
        decided: list[tuple[int, Verdict]] = sorted([(better, "better"), (worse, "worse")])
        possible = self._attainable
        return next((verdict for time, verdict in decided if time < never and verdict in possible), "undecided")

    @property
    def settled(self) -> bool:
        """Whether further labels are of no use: there is a verdict, or there can be none."""
        return self.verdict != "undecided" or not self._attainable

    @property
    def estimate(self) -> float:
        """The mean outcome so far as a difference of accuracy; NaN before the first label."""
        return self._population.rate * sum(self._outcomes) / len(self._outcomes) if self._outcomes else math.nan

    @property
    def interval(self) -> Interval:
        r"""The differences of accuracy that the labels so far do not exclude: one of a confidence sequence.

        It leaves out each :math:`\Delta` that is at most, or at least, a value rejected at :math:`\delta / 2` by now.
        The true difference lies in all intervals of a stream at once with probability at least :math:`1 - \delta`. The
        verdict is "better" when the lower end exceeds the margin. With all M labels the interval is one point.
        """
        outcomes = self._array
        least, most = self._population.attainable(outcomes)
        lower = self._population.first_kept(self._keeps(outcomes), least, most)
        upper = -self._population.first_kept(self._keeps(-outcomes), -most, -least)
        if lower > upper:  # of probability δ at most; nothing but the labels themselves is certain then
            lower, upper = least, most
        return Interval(lower / self._population.scale, upper / self._population.scale)

    @property
    def _array(self) -> Outcomes:
        return np.asarray(self._outcomes, dtype=np.int8)

    @property
    def _attainable(self) -> list[Verdict]:
        """The verdicts that the labels so far leave possible."""
        least, most = self._population.attainable(self._array)
        best: dict[Verdict, float] = {"better": most, "worse": -least}
        return [verdict for verdict, total in best.items() if total > self._bound]

    def log_e_values(self, outcomes: Outcomes) -> tuple[Floats, Floats]:
        """log of both e-values after each of the outcomes (..., T)."""
        against = self._population.log_e_values
        return against(outcomes, self._bound), against(-outcomes, self._bound)

    def _keeps(self, outcomes: Outcomes) -> Callable[[float], bool]:
        """Whether "the total is at most this bound" was never rejected by these outcomes."""
        level = math.log(self.threshold)
        return lambda bound: bool((self._population.log_e_values(outcomes, bound) < level).all())


def _population(disagreements: int | None, images: int | None) -> _Independent | _WithoutReplacement:
    if disagreements is None and images is None:
        return _Independent()
    if disagreements is None or images is None:
        raise UserError("pass both `disagreements` (M) and `images` (N), or neither")
    if not 1 <= disagreements <= images:
        raise UserError(f"`disagreements` lies between 1 and `images`, got {disagreements} of {images}")
    return _WithoutReplacement(disagreements, images)


class _Independent:
    """Outcomes are independent draws. Bounds are bounds of their mean."""

    rate = 1.0
    scale = 1

    def bound(self, margin: float) -> float:
        return margin

    def remaining(self, outcomes: Outcomes) -> int | None:
        return None

    def attainable(self, outcomes: Outcomes) -> tuple[float, float]:
        return -1.0, 1.0

    def log_e_values(self, outcomes: Outcomes, bound: float) -> Floats:
        """log e-values against "the mean is at most ``bound``" after each of the outcomes (..., T)."""
        return _log_wealth(outcomes, np.full(outcomes.shape[-1], (1 + bound) / 2))

    def first_kept(self, kept: Callable[[float], bool], least: float, most: float) -> float:
        """From where on bounds are kept, from below and to within 2^-39."""
        if kept(least):
            return least
        for _ in range(BISECTIONS):
            middle = (least + most) / 2
            least, most = (least, middle) if kept(middle) else (middle, most)
        return least


class _WithoutReplacement:
    """Outcomes are drawn from M of N images until none is left. Bounds are bounds of the total of all M outcomes."""

    def __init__(self, disagreements: int, images: int):
        self.disagreements = disagreements
        self.scale = images
        self.rate = disagreements / images

    def bound(self, margin: float) -> float:
        return math.floor(self.scale * margin + 1e-9)

    def remaining(self, outcomes: Outcomes) -> int:
        return self.disagreements - len(outcomes)

    def attainable(self, outcomes: Outcomes) -> tuple[int, int]:
        """The least and the largest total that the remaining labels can lead to."""
        total, left = int(outcomes.sum(dtype=np.int64)), self.remaining(outcomes)
        return total - left, total + left

    def log_e_values(self, outcomes: Outcomes, bound: float) -> Floats:
        """log e-values against "the total is at most ``bound``" after each of the outcomes (..., T)."""
        after = outcomes.cumsum(axis=-1, dtype=np.int64)
        left = self.disagreements - np.arange(outcomes.shape[-1])
        prices = 0.5 + (bound - after + outcomes) / (2 * left)
        log_e = _log_wealth(outcomes, prices.clip(0, 1))
        log_e[after - (left - 1) > bound] = math.inf
        return log_e

    def first_kept(self, kept: Callable[[float], bool], least: float, most: float) -> float:
        """The smallest whole number from ``least`` on that is kept; one above ``most`` if none is."""
        return least + bisect.bisect_left(range(int(least), int(most) + 1), True, key=kept)


def _log_wealth(outcomes: Outcomes, prices: Floats) -> Floats:
    """log of the wealth of all bettors together after each outcome (..., T); prices broadcast to the outcomes."""
    with np.errstate(divide="ignore", invalid="ignore"):
        returns = np.where(outcomes == -1, 0.0, (1 + outcomes) / 2 / prices)
    wealth = np.full(outcomes.shape, -math.inf)
    for stake, weight in zip(STAKES, WEIGHTS, strict=True):
        np.logaddexp(wealth, math.log(weight) + np.log1p(stake * (returns - 1)).cumsum(axis=-1), out=wealth)
    return wealth


def first_at(curves: Floats, level: float, never: int) -> NDArray[np.int64]:
    """The first index at which each curve (..., T) is at the level or above, or ``never``."""
    reached = curves >= level
    return np.where(reached.any(axis=-1), reached.argmax(axis=-1) if reached.shape[-1] else 0, never)


def require_share(name: str, value: float) -> None:
    """Refuse what is no share of a whole.

    Raises:
        UserError: the value lies outside [0, 1]
    """
    if not 0 <= value <= 1:
        raise UserError(f"`{name}` is a share, at least 0 and at most 1, got {value}")


def _last_exp(curve: Floats) -> float:
    """The e-value after the last label; infinite where it exceeds what a float holds."""
    with np.errstate(over="ignore"):
        return float(np.exp(curve[-1])) if len(curve) else 1.0
