"""Indicators of a model's accuracy without labels, an interval from labels, and a test of drift.

No estimate without labels holds under every shift (Garg et al., ICLR 2022, Section 3). None that was measured covers
90 % of the targets of every left-out family (``benchmarks/results/assess.md``), so that no indicator has an interval.
Accuracies are fractions in [0, 1]; features are (N, D).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tllib_ancon.measures.disagreement import Floats, Interval, log_wealth
from tllib_ancon.runtime.errors import UserError

INDICATORS = ("agreement", "aetta", "class_frequencies", "drift_p")

CONTRADICTION = 0.2
"""Difference between agreement and AETTA above which they contradict each other."""
FEWEST_ANSWERS = FEWEST_IMAGES = 10
"""Of labels that count, and of the source's images for the test of drift."""
HALF_WIDTH, PRIOR_LABELS = 0.05, 10
"""Of the interval that :func:`labels_needed` is about; labels that the control variate's slope is shrunk by."""
UNRELIABLE = "no reliable estimate of the accuracy without labels"


@dataclass(frozen=True)
class SourceStatistics:
    """Moments of a model's D features on N images of its source that it was not trained on.

    Attributes:
        images: N
        feature_means, feature_deviations: of the D features
    """

    images: int
    feature_means: list[float]
    feature_deviations: list[float]

    @classmethod
    def of(cls, features: ArrayLike) -> SourceStatistics:
        """Those of features (N, D), N at least 2."""
        inner = np.asarray(features, float)
        return cls(len(inner), inner.mean(0).tolist(), inner.std(0, ddof=1).tolist())


def agreement(classes: ArrayLike, others: ArrayLike) -> float:
    """The agreement rate of two networks' predicted classes, (N,) each.

    Source: Jiang, Nagarajan, Baek and Kolter, "Assessing Generalization of SGD via Disagreement", ICLR 2022, for two
    trainings. Here the second is the model with half of these images' batch-norm statistics, which needs none.
    """
    return float((np.asarray(classes) == np.asarray(others)).mean())


def drift_p(features: ArrayLike, source: SourceStatistics) -> float:
    r"""The p-value of "these N ≥ 2 images are like the source's", by the means of features; other class shares count.

    .. math:: p = \min\big(1, D \min_d p_d\big)

    with :math:`p_d` Student's two-sample test of feature d with the pooled variance, which needs the source's moments
    alone. Source: Rabanser, Günnemann and Lipton, "Failing Loudly", NeurIPS 2019, with Student's test in place of
    Kolmogorov and Smirnov's. Bonferroni's bound holds for dependent features.
    """
    from scipy.special import stdtr  # in place of scipy.stats, whose import takes a second

    given = np.asarray(features, float)
    if given.shape[1] != len(source.feature_means):
        raise UserError(
            f"the model has {given.shape[1]} features, and its `source` {len(source.feature_means)}; "
            "pass the source of this model"
        )
    here, there = len(given), source.images
    squares = (here - 1) * given.var(0, ddof=1) + (there - 1) * np.square(source.feature_deviations)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(squares / (here + there - 2) * (1 / here + 1 / there))
        p_values = 2 * stdtr(here + there - 2, -np.abs(given.mean(0) - source.feature_means) / error)
    return float(min(1.0, np.nan_to_num(p_values, nan=1.0).min() * p_values.size))  # NaN: constant on both


def indicators(
    classes: ArrayLike, num_classes: int, features: ArrayLike, source: SourceStatistics | None
) -> dict[str, Any]:
    """Frequencies of the K predicted classes, and :func:`drift_p` if there are a source, features and two images."""
    counts = np.bincount(np.asarray(classes), minlength=num_classes)
    found: dict[str, Any] = {"class_frequencies": (counts / counts.sum()).tolist()}
    if source is not None and np.size(np.asarray(features)[1:]):
        found["drift_p"] = drift_p(features, source)
    return found


def in_words(indicators: Mapping[str, Any], labels_needed: int) -> list[str]:
    """Lines for a terminal, a report or a model card: the indicators, and the labels that an interval takes."""
    frequencies = indicators["class_frequencies"]
    rates = {name: indicators[name] for name in ("agreement", "aetta") if name in indicators}
    listed = [f"{name} {100 * rate:.1f} %" for name, rate in rates.items()]
    number, largest = np.count_nonzero(frequencies), 100 * max(frequencies)
    listed.append(f"{number} of {len(frequencies)} classes predicted, the most frequent for {largest:.1f} % of images")
    lines = [f"indicators: {', '.join(listed)}"]
    if len(rates) > 1 and (apart := float(np.ptp([*rates.values()]))) > CONTRADICTION:
        lines.append(f"contradiction: agreement and aetta differ by {100 * apart:.1f} points")
    if "drift_p" in indicators:
        lines.append(f"drift: p = {indicators['drift_p']:.2g} that features have the means of the source's hold-out")
    return [*lines, f"to know the accuracy to ± 5 points, label about {labels_needed:,} random images"]


def before_adapting(result: Mapping[str, Any]) -> list[str]:
    """Lines about the source model of an adaptation, by its ``result.json``; none from version 0.1."""
    if "assessment" not in result:
        return []
    return [f"before adapting: {UNRELIABLE}", *in_words(**result["assessment"])]


def labelled_accuracy(right: ArrayLike, confidences: ArrayLike, delta: float = 0.05) -> tuple[float, Interval]:
    r"""Estimate the accuracy on N images from n labels, with an interval that is valid whenever labelling stops.

    The images are labelled in random order. Let :math:`y_t` be 1 if the model is right on the t-th image, and
    :math:`c_t` its confidence there. Let :math:`\bar c_t` be the mean confidence from the t-th image on. Then

    .. math::
        z_t = y_t - \lambda_t (c_t - \bar c_t), \qquad
        \mathbb{E}[z_t \mid \text{before}] = \mu_t = \frac{N a - \sum_{s<t} y_s}{N - t + 1}

    for the accuracy a, whatever slope :math:`\lambda_t` the labels before t chose: here that of the regression of y on
    c, shrunk by :data:`PRIOR_LABELS`, in [0, 1]. The evidence against an accuracy of at most a is the wealth of bettors

    .. math:: E_n = \sum_j w_j \prod_{t \le n} \Big(1 + \theta_j \frac{z_t - \mu_t}{\mu_t - \underline{z}_t}\Big)

    with the least value that z can have, :math:`\underline{z}_t`. If it is true, E ever reaches :math:`2/\delta` with
    probability at most :math:`\delta/2`. The interval leaves out what was rejected so, from either side: the accuracy
    lies in the intervals after all n at once with probability at least :math:`1 - \delta`. The estimate is
    :math:`\lambda \bar c + \frac1n \sum_t (y_t - \lambda c_t)` with the slope of all labels.

    Shape: right (n,) 0 or 1, 1 ≤ n ≤ N; confidences (N,) in [0, 1], first those of the labelled images, in their order.

    Source: Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2024, Section 5;
    Angelopoulos et al., "Prediction-powered inference", Science 2023, for predictions as control variate.
    """
    seen, control = np.asarray(right, float), np.asarray(confidences, float)
    count, total = len(seen), len(control)
    lower, upper = _fewest_right(seen, control, delta), total - _fewest_right(1 - seen, 1 - control, delta)
    if lower > upper:  # of probability δ at most; nothing but the labels themselves is certain then
        lower, upper = int(seen.sum()), total - count + int(seen.sum())
    slope, interval = _slopes(seen, control)[-1], Interval(lower / total, upper / total)
    estimate = slope * control.mean() + (seen - slope * control[:count]).mean()
    return float(np.clip(estimate, *interval)), interval


def labels_needed(accuracy: float, images: int, delta: float = 0.05) -> int:
    """About how many labels an interval of ± :data:`HALF_WIDTH` takes at this accuracy; at most all images."""

    def is_enough(labels: int) -> bool:
        right = np.diff(np.floor(np.arange(labels + 1) * accuracy + 0.5))
        lower, upper = labelled_accuracy(right, np.zeros(images), delta)[1]
        return upper - lower <= 2 * HALF_WIDTH

    most = math.ceil(2 * math.log(2 / delta) / HALF_WIDTH**2)  # four times the number by Hoeffding's inequality
    return 1 + bisect.bisect_left(range(1, min(images, most)), True, key=is_enough)


def _slopes(right: Floats, confidences: Floats) -> Floats:
    """The slope that the labels before each choose, and last the one that all choose: (n + 1,)."""
    seen, count = confidences[: len(right)], np.arange(len(right) + 1).clip(1)
    y, c, yc, cc = (np.append(0.0, values.cumsum()) for values in (right, seen, right * seen, seen**2))
    spread = cc - c**2 / count + PRIOR_LABELS * confidences.var() + 1e-12
    slopes: Floats = ((yc - y * c / count) / spread).clip(0, 1)
    return slopes


def _fewest_right(right: Floats, confidences: Floats, delta: float) -> int:
    """The smallest number of right ones among all images that is not rejected."""
    count, total = len(right), len(confidences)
    left = total - np.arange(count)
    mean = confidences[::-1].cumsum()[::-1][:count] / left
    slopes, before = _slopes(right, confidences)[:-1], right.cumsum() - right
    values = right - slopes * (confidences[:count] - mean)
    least = -slopes * (confidences.max() - mean)

    def is_kept(number: int) -> bool:
        price = (number - before) / left - least
        with np.errstate(divide="ignore", invalid="ignore"):
            gains = np.where(price > 0, (values - least) / price - 1, 0.0)
        return bool((log_wealth(gains) < math.log(2 / delta)).all())

    first = int(right.sum())  # fewer are impossible
    return first + bisect.bisect_left(range(first, total - count + first), True, key=is_kept)
