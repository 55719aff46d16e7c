r"""Which of two models is better, decided from a few labels of the images on which they disagree.

Of N images, M have another class from the adapted model than from the source model. Let :math:`Y_i` be +1 if the
adapted model is right on disagreement i, -1 if the source model is, 0 if neither is. Where they agree nothing changes:

.. math::
    \Delta = \mathrm{acc}(\mathrm{adapted}) - \mathrm{acc}(\mathrm{source}) = \frac{1}{N} \sum_{i=1}^{M} Y_i
    = \frac{M}{N} \mu, \qquad \mu = \frac{1}{M} \sum_{i=1}^{M} Y_i.

The disagreements are labelled in random order. After each label :class:`DisagreementTest` may be asked for its verdict,
and one may stop whenever one likes: the probability that its verdict is ever false is at most :math:`\delta`.

Accuracies and their differences are shares of all N images here, not percents: 0.01 is one point.
"""

import bisect
import math
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tllib_ancon.config.arguments import validated
from tllib_ancon.config.types import BelowOne, Probability
from tllib_ancon.runtime.errors import BadSetting, UserError, named

Floats = NDArray[np.float64]
Outcomes = NDArray[np.int8]
Verdict = Literal["better", "worse", "undecided"]
Side = Literal["better", "both"]

STAKES = (np.arange(32) + 0.5) / 32
"""The shares of its wealth that a bettor puts on each label."""
WEIGHTS = (1 - STAKES) / (1 - STAKES).sum()
"""What each of these bettors starts with: more for the small stakes, which small differences need."""

STEPS = 2**39
"""To a point of accuracy 1 in intervals of independent draws, whose ends are found on their outer side."""


class Interval(NamedTuple):
    """The differences of accuracy that the labels do not exclude, both ends included."""

    lower: float
    upper: float


class DisagreementTest:
    r"""Is the adapted model better than the source model? Valid whenever one stops.

    It tests two hypotheses at once, each at :math:`\alpha = \delta / 2`, or :math:`\delta` where ``side`` is "better":

    .. math:: H_{\mathrm{better}}: \Delta \le \mathrm{margin} \qquad H_{\mathrm{worse}}: \Delta \ge -\mathrm{margin}

    and returns "better" or "worse" when the first or the second is rejected. The evidence against a hypothesis is the
    wealth of bettors who bet against it at odds that are fair or worse if it is true. With :math:`z = (1 + y) / 2`,

    .. math:: E_t = \sum_j w_j \prod_{s \le t} \Big( 1 - \theta_j + \theta_j \frac{z_s}{\eta_s} \Big),

    where bettor j stakes the fraction :math:`\theta_j` (:data:`STAKES`) of its wealth and starts with :math:`w_j`
    (:data:`WEIGHTS`). The price :math:`\eta_s` is the largest expectation of :math:`z_s`, given the labels before it,
    that the hypothesis allows. For draws without replacement from M disagreements

    .. math:: \eta_s = \frac{1}{2} + \frac{N \cdot \mathrm{margin} - \sum_{r < s} y_r}{2 (M - s + 1)}

    clipped to [0, 1], and :math:`E_t = \infty` as soon as no labels of the remaining images can make the hypothesis
    true. For independent draws :math:`\eta_s = (1 + \mathrm{margin}) / 2`. Under the hypothesis E is a non-negative
    supermartingale that starts at 1, so that it ever reaches :math:`1 / \alpha` with probability at most
    :math:`\alpha` (Ville's inequality).

    Who deploys a model asks one question, whether it is better. With ``side`` "better" a false "better" has probability
    :math:`\delta` at most, and so has a false "worse", which ends the asking. Of models within the margin of each other
    both are false: there, either comes with probability :math:`2 \delta` at most.

    Args:
        delta (float): probability of a false verdict, in (0, 1). Default: 0.05
        margin (float): the difference of accuracy that does not matter, as a share of all images (0.01 is one point),
            in [0, 1). "better" means better by more than this. Default: 0
        disagreements (int, optional): M, from which outcomes are drawn without replacement
        images (int, optional): N. Without both, outcomes are independent draws from a population without end, and
            :math:`\Delta` is their mean: that of all images if the images were drawn from all
        side (str): "both" if ``delta`` is of both verdicts together, "better" if it is of each. Default: "both"

    Raises:
        UserError: ``delta`` or ``margin`` out of range, or counts that do not fit.

    Attributes:
        outcomes: the labels so far, in their order

    Source: Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2024
    (arXiv 2010.09686), Sections 4 and 5; the mixture over stakes in place of one that adapts.
    """

    @validated
    def __init__(
        self,
        delta: Probability = 0.05,
        margin: BelowOne = 0.0,
        *,
        disagreements: int | None = None,
        images: int | None = None,
        side: Side = "both",
    ):
        are_independent = disagreements is None and images is None
        if not are_independent and not 1 <= (disagreements or 0) <= (images or 0):
            raise BadSetting(
                f"{named('disagreements')} must be between 1 and {named('images')}, got {disagreements} of {images}",
                "pass both or neither",
                setting="disagreements",
            )
        self.delta = delta
        self.margin = margin
        self.disagreements = disagreements
        self.side = side
        self.outcomes: tuple[int, ...] = ()
        self._scale = STEPS  # what a difference of accuracy is multiplied with to give a whole total
        self._bound: float = STEPS * margin  # the largest total within the margin
        self._rate = 1.0  # of disagreements among the images
        if disagreements is not None and images is not None:
            self._scale = images
            self._bound = math.floor(images * margin + 1e-9)
            self._rate = disagreements / images

    def update(self, outcome: int) -> None:
        """One more label.

        Args:
            outcome (int): +1 if the adapted model is right, -1 if the source model is, 0 if neither is

        Raises:
            UserError: another value, or a label after all M disagreements have theirs.
        """
        if outcome not in (-1, 0, 1):
            raise UserError(f"an outcome must be 1 (adapted right), -1 (source right) or 0 (neither), got {outcome!r}")
        if self.remaining == 0:
            raise UserError(f"all {len(self.outcomes)} disagreements have their label", "read the verdict")
        self.outcomes = (*self.outcomes, int(outcome))
        vars(self).pop("log_curves", None)  # they are computed again when they are next read

    @property
    def remaining(self) -> int | None:
        """Disagreements without a label; None if there is no end of them."""
        if self.disagreements is None:
            return None
        return self.disagreements - len(self.outcomes)

    @property
    def threshold(self) -> float:
        """The e-value at which a verdict falls: 2 / δ, or 1 / δ where ``side`` is "better"."""
        if self.side == "both":
            return 2 / self.delta
        return 1 / self.delta

    @cached_property
    def log_curves(self) -> tuple[Floats, Floats]:
        """log of the evidence that the difference exceeds the margin, and that it lies below minus the margin, after
        each label; two arrays (T,)."""
        return self.log_e_values(self._outcomes_array)

    @property
    def verdict(self) -> Verdict:
        """What the labels have decided. It stays, unless later labels prove it false. With all M known it is exact, and
        "undecided" then means that the difference is within the margin."""
        never = len(self.outcomes)
        curve_of_better, curve_of_worse = self.log_curves
        times: dict[Verdict, int] = {
            "better": int(self.first_verdict(curve_of_better, never)),
            "worse": int(self.first_verdict(curve_of_worse, never)),
        }
        standing = [verdict for verdict in self._possible if times[verdict] < never]
        return min(standing, key=times.__getitem__, default="undecided")

    @property
    def settled(self) -> bool:
        """Whether further labels are of no use: there is a verdict, or there can be none."""
        return self.verdict != "undecided" or not self._possible

    @property
    def estimate(self) -> float:
        """The mean outcome so far as a difference of accuracy; NaN before the first label."""
        if not self.outcomes:
            return math.nan
        return self._rate * sum(self.outcomes) / len(self.outcomes)

    @property
    def interval(self) -> Interval:
        r"""The differences of accuracy that the labels so far do not exclude: one of a confidence sequence.

        It leaves out each :math:`\Delta` that is at most, or at least, a value rejected at :math:`\alpha` by now. Each
        end is ever wrong with probability :math:`\alpha` at most. So all intervals of a stream hold the difference with
        probability at least :math:`1 - 2 \alpha`. The verdict is "better" when the lower end exceeds the margin. With
        all M labels the interval is one point.
        """
        least, most = self._attainable
        lower = self._lowest_accepted(self._outcomes_array, least, most)
        upper = -self._lowest_accepted(-self._outcomes_array, -most, -least)
        if lower > upper:  # of probability δ at most; nothing but the labels themselves is certain then
            return Interval(least / self._scale, most / self._scale)
        return Interval(lower / self._scale, upper / self._scale)

    def log_e_values(self, outcomes: Outcomes) -> tuple[Floats, Floats]:
        """log of both e-values after each of the outcomes (..., T)."""
        return self._against(outcomes, self._bound), self._against(-outcomes, self._bound)

    def first_verdict(self, curves: Floats, never: int) -> NDArray[np.int64]:
        """The first index at which each curve (..., T) of log e-values reaches the threshold, or ``never``."""
        if curves.shape[-1] == 0:
            return np.full(curves.shape[:-1], never)
        reached = curves >= math.log(self.threshold)
        return np.where(reached.any(axis=-1), reached.argmax(axis=-1), never)

    @property
    def _outcomes_array(self) -> Outcomes:
        return np.asarray(self.outcomes, dtype=np.int8)

    @property
    def _attainable(self) -> tuple[int, int]:
        """The least and the largest total that the labels so far leave possible."""
        if self.remaining is None:
            return -self._scale, self._scale
        return sum(self.outcomes) - self.remaining, sum(self.outcomes) + self.remaining

    @property
    def _possible(self) -> list[Verdict]:
        """The verdicts that the labels so far leave possible."""
        least, most = self._attainable
        possible: list[Verdict] = []
        if most > self._bound:
            possible.append("better")
        if -least > self._bound:
            possible.append("worse")
        return possible

    def _against(self, outcomes: Outcomes, bound: float) -> Floats:
        """log e-values against "the total is at most ``bound``" after each of the outcomes (..., T)."""
        if self.disagreements is None:
            price = (1 + bound / self._scale) / 2
            return _log_wealth(_gains(outcomes, price))
        totals = outcomes.cumsum(axis=-1, dtype=np.int64)
        totals_before = totals - outcomes
        remaining = self.disagreements - np.arange(outcomes.shape[-1])  # before each label
        prices = 0.5 + (bound - totals_before) / (2 * remaining)
        log_e_values = _log_wealth(_gains(outcomes, prices.clip(max=1)))
        least_totals = totals - (remaining - 1)
        log_e_values[least_totals > bound] = math.inf
        return log_e_values

    def _lowest_accepted(self, outcomes: Outcomes, least: int, most: int) -> int:
        """The smallest total from ``least`` on that the outcomes never rejected, one above ``most`` if there is none;
        of independent draws the step below it."""
        level = math.log(self.threshold)

        def is_accepted(total: int) -> bool:
            return bool((self._against(outcomes, total) < level).all())

        first = least + bisect.bisect_left(range(least, most + 1), True, key=is_accepted)
        if self.disagreements is None:
            return max(first - 1, least)
        return first


def _log_wealth(gains: Floats) -> Floats:
    """log of the wealth of all bettors together after each label (..., T), from what a stake of 1 gains by it."""
    wealth = np.full(gains.shape, -math.inf)
    for stake, weight in zip(STAKES, WEIGHTS, strict=True):
        log_growth = np.log1p(stake * gains).cumsum(axis=-1)
        np.logaddexp(wealth, math.log(weight) + log_growth, out=wealth)
    return wealth


def _gains(outcomes: Outcomes, prices: Floats | float) -> Floats:
    """What a stake of 1 gains by each outcome (..., T); prices broadcast to the outcomes."""
    values = (1 + outcomes) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        payments = values / prices
    return np.where(outcomes == -1, 0.0, payments) - 1
