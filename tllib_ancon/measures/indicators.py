"""Indicators of a model's accuracy without labels, an interval from labels, and a test of drift.

No estimate without labels holds under every shift (Garg et al., ICLR 2022, Section 3). None that was measured covers
90 % of the targets of every left-out family (``benchmarks/results/earlier.md``), so that no indicator has an interval.
Accuracies are fractions in [0, 1]; features are (N, D).
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tllib_ancon.measures.disagreement import Floats, Interval, log_wealth
from tllib_ancon.runtime.errors import BadModel, named
from tllib_ancon.runtime.types import Metrics, Record

INDICATORS = ("agreement", "aetta", "class_frequencies", "drift_p")

CONTRADICTION = 0.2
"""Difference between agreement and AETTA above which they contradict each other."""
FEWEST_ANSWERS = 10
"""Of labels that count."""
FEWEST_IMAGES = 10
"""Of the source, for the test of drift."""
HALF_WIDTH = 0.05
"""Of the interval that :func:`labels_to_estimate_accuracy` is about."""
PRIOR_LABELS = 10
"""Labels that the control variate's slope is shrunk by."""
SMALLEST_P = 1e-300
"""Below which a p-value is not printed in digits."""

UNRELIABLE = "no reliable estimate of the accuracy without labels"


@dataclass(frozen=True)
class SourceStatistics:
    """Moments of a model's D features on N images, such as those of its source that it was not trained on.

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
        rows = np.asarray(features, float)
        return cls(len(rows), rows.mean(0).tolist(), rows.std(0, ddof=1).tolist())


def agreement(classes: ArrayLike, second_classes: ArrayLike) -> float:
    """The agreement rate of two networks' predicted classes, (N,) each.

    Source: Jiang, Nagarajan, Baek and Kolter, "Assessing Generalization of SGD via Disagreement", ICLR 2022, for two
    trainings. Here the second is the model with half of these images' batch-norm statistics, which needs none.
    """
    return float((np.asarray(classes) == np.asarray(second_classes)).mean())


def student_p(statistics: Floats, degrees_of_freedom: float) -> Floats:
    r"""The two-sided p-values of Student's t, (D,); NaN for NaN.

    .. math:: P(|T| \ge |t|) = \frac{2\,\Gamma(\frac{\nu+1}{2})}{\sqrt\pi\,\Gamma(\frac{\nu}{2})}
        \int_{\operatorname{arsinh}(|t|/\sqrt\nu)}^\infty \cosh(y)^{-\nu}\,dy

    by Gauss and Legendre, up to where the integrand has fallen by :math:`e^{-40}`.
    """
    lower = np.arcsinh(np.minimum(np.abs(statistics), 1e300) / math.sqrt(degrees_of_freedom))
    log_fall = 40 / degrees_of_freedom
    log_cosh_upper = _log_cosh(lower) + log_fall
    upper = log_cosh_upper + np.log1p(np.sqrt(-np.expm1(-2 * log_cosh_upper)))  # arcosh
    nodes, weights = np.polynomial.legendre.leggauss(64)
    points = lower[:, None] + (upper - lower)[:, None] * (nodes + 1) / 2
    integrals = (upper - lower) / 2 * (np.exp(-degrees_of_freedom * _log_cosh(points)) @ weights)
    log_factor = math.lgamma((degrees_of_freedom + 1) / 2) - math.lgamma(degrees_of_freedom / 2)
    return 2 / math.sqrt(math.pi) * math.exp(log_factor) * integrals


def _log_cosh(values: Floats) -> Floats:
    return np.logaddexp(values, -values) - math.log(2)


def drift_p(features: ArrayLike, source: SourceStatistics) -> float:
    r"""The p-value of "these N ≥ 2 images are like the source's", by the means of features; other class shares count.

    .. math:: p = \min\big(1, D \min_d p_d\big)

    with :math:`p_d` Student's two-sample test of feature d with the pooled variance, which needs the source's moments
    alone. Source: Rabanser, Günnemann and Lipton, "Failing Loudly", NeurIPS 2019, with Student's test in place of
    Kolmogorov and Smirnov's. Bonferroni's bound holds for dependent features.
    """
    target = SourceStatistics.of(features)
    if len(target.feature_means) != len(source.feature_means):
        raise BadModel(
            f"the model has {len(target.feature_means)} features, and its {named('source')} "
            f"{len(source.feature_means)}",
            "pass the source of this model",
        )
    degrees_of_freedom = target.images + source.images - 2
    squares = (target.images - 1) * np.square(target.feature_deviations)
    squares += (source.images - 1) * np.square(source.feature_deviations)
    pooled_variances = squares / degrees_of_freedom
    differences = np.subtract(target.feature_means, source.feature_means)
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.sqrt(pooled_variances * (1 / target.images + 1 / source.images))
        p_values = student_p(differences / errors, degrees_of_freedom)
    smallest = np.nan_to_num(p_values, nan=1.0).min()  # NaN: constant on both
    return float(min(1.0, smallest * p_values.size))


def indicators(classes: ArrayLike, num_classes: int, features: ArrayLike, source: SourceStatistics | None) -> Metrics:
    """Frequencies of the K predicted classes, and :func:`drift_p` if there are a source, features and two images."""
    counts = np.bincount(np.asarray(classes), minlength=num_classes)
    values: Metrics = {"class_frequencies": (counts / counts.sum()).tolist()}
    rows = np.asarray(features)
    has_features = rows.size > 0
    if source is not None and has_features and len(rows) > 1:
        values["drift_p"] = drift_p(rows, source)
    return values


def in_words(indicators: Metrics, labels_needed: int) -> list[str]:
    """Lines for a terminal, a report or a model card: the indicators, and the labels that an interval takes."""
    rates = [f"{name} {100 * indicators[name]:.1f} %" for name in ("agreement", "aetta") if name in indicators]
    frequencies = indicators["class_frequencies"]
    predicted = f"{np.count_nonzero(frequencies)} of {len(frequencies)} classes predicted"
    most_frequent = f"the most frequent for {100 * max(frequencies):.1f} % of images"
    lines = [f"indicators: {', '.join([*rates, predicted, most_frequent])}"]
    if "agreement" in indicators and "aetta" in indicators:
        difference = abs(indicators["agreement"] - indicators["aetta"])
        if difference > CONTRADICTION:
            lines.append(f"contradiction: agreement and aetta differ by {100 * difference:.1f} points")
    if "drift_p" in indicators:
        probability = f"p = {indicators['drift_p']:.2g}"
        if indicators["drift_p"] < SMALLEST_P:  # it may be 0 in 64 bits
            probability = f"p < {SMALLEST_P:g}"
        lines.append(f"drift: {probability} that features have the means of the source's hold-out")
    lines.append(f"to know the accuracy to ± 5 points, label about {labels_needed:,} random images")
    return lines


def before_adapting(result: Record) -> list[str]:
    """Lines about the source model of an adaptation, by its ``result.json``; none for a model without logits."""
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
    labels = np.asarray(right, float)
    control = np.asarray(confidences, float)
    num_labels = len(labels)
    num_images = len(control)
    lower = _fewest_right(labels, control, delta)
    upper = num_images - _fewest_right(1 - labels, 1 - control, delta)
    if lower > upper:  # of probability δ at most; nothing but the labels themselves is certain then
        lower = int(labels.sum())
        upper = num_images - num_labels + lower
    interval = Interval(lower / num_images, upper / num_images)
    slope = _slopes(labels, control)[-1]
    residuals = labels - slope * control[:num_labels]
    estimate = slope * control.mean() + residuals.mean()
    return float(np.clip(estimate, *interval)), interval


def labels_to_estimate_accuracy(accuracy: float, images: int, delta: float = 0.05) -> int:
    """About how many labels an interval of ± :data:`HALF_WIDTH` takes at this accuracy; at most all images."""

    def is_enough(labels: int) -> bool:
        right = np.diff(np.floor(np.arange(labels + 1) * accuracy + 0.5))
        lower, upper = labelled_accuracy(right, np.zeros(images), delta)[1]
        return upper - lower <= 2 * HALF_WIDTH

    most = math.ceil(2 * math.log(2 / delta) / HALF_WIDTH**2)  # four times the number by Hoeffding's inequality
    return 1 + bisect.bisect_left(range(1, min(images, most)), True, key=is_enough)


def _slopes(right: Floats, confidences: Floats) -> Floats:
    """The slope that the labels before each choose, and last the one that all choose: (n + 1,)."""
    control = confidences[: len(right)]
    counts = np.arange(len(right) + 1).clip(1)
    sum_y = _sums_before(right)
    sum_c = _sums_before(control)
    sum_yc = _sums_before(right * control)
    sum_cc = _sums_before(control**2)
    covariance = sum_yc - sum_y * sum_c / counts
    variance = sum_cc - sum_c**2 / counts + PRIOR_LABELS * confidences.var() + 1e-12
    slopes: Floats = (covariance / variance).clip(0, 1)
    return slopes


def _sums_before(values: Floats) -> Floats:
    """Sums of the values before each, and last of all: (n + 1,)."""
    return np.append(0.0, values.cumsum())


def _fewest_right(right: Floats, confidences: Floats, delta: float) -> int:
    """The smallest number of right ones among all images that is not rejected."""
    num_labels = len(right)
    num_images = len(confidences)
    remaining = num_images - np.arange(num_labels)  # before each label
    right_before = right.cumsum() - right
    sums_from_each_on = confidences[::-1].cumsum()[::-1]
    mean_confidences = sums_from_each_on[:num_labels] / remaining
    slopes = _slopes(right, confidences)[:-1]
    values = right - slopes * (confidences[:num_labels] - mean_confidences)
    least_values = -slopes * (confidences.max() - mean_confidences)

    def is_accepted(number: int) -> bool:
        prices = (number - right_before) / remaining - least_values
        with np.errstate(divide="ignore", invalid="ignore"):
            gains = np.where(prices > 0, (values - least_values) / prices - 1, 0.0)
        return bool((log_wealth(gains) < math.log(2 / delta)).all())

    fewest_possible = int(right.sum())
    most_possible = num_images - num_labels + fewest_possible
    numbers = range(fewest_possible, most_possible)
    return fewest_possible + bisect.bisect_left(numbers, True, key=is_accepted)
