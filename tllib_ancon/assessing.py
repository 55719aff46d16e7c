r"""What a model's accuracy is on images of another domain: estimates without labels, intervals with a few, and drift.

An estimate without labels rests on how the model's predictions look, and some shift leaves them as they are while it
changes the classes: no such estimate can be trusted under every shift (Garg et al., 2022, Section 3). The intervals of
:data:`ERRORS` hold as often as was measured on four families of shifts (``docs/assess.md``), and no theorem says that
the next shift is like these. The interval of :func:`labelled_accuracy` needs no such faith.

Accuracies are shares in [0, 1] here.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tllib_ancon.certification import STAKES, WEIGHTS, Interval
from tllib_ancon.errors import UserError

Floats = NDArray[np.float64]

Advice = Literal["adapt", "do not adapt", "cannot tell"]

ERRORS: Mapping[str, tuple[float, float]] = {
    "atc": (-0.90, 0.09),
    "doc": (-0.91, 0.05),
    "aetta": (-0.30, 0.19),
    "agreement": (-0.36, 0.06),
}
"""How far the accuracy lay from each estimate without labels, as measured on four families of shifts."""
ADAPT_BELOW, LEAVE_FROM = 0.8, 0.9
"""Shares between which it cannot be told whether adapting helps, as measured."""
FEWEST_ANSWERS = FEWEST_IMAGES = 10
"""Of labels that count, and of images that tell the source's statistics."""
HALF_WIDTH = 0.1
"""How far from its middle an interval reaches for which :func:`labels_needed` says the number of labels."""
PRIOR_LABELS = 10
"""Labels that the control variate's slope is shrunk by."""
TEMPERATURES = (0.25, 20.0)
"""Between which that of the source is sought: where all images are right, the likeliest one would be 0."""


@dataclass(frozen=True)
class SourceStatistics:
    r"""What is kept of a model's outputs on N labelled images of its source that it was not trained on.

    Attributes:
        images: N
        class_counts: of each class's images, K numbers
        accuracy: share of the images that are classified right
        temperature: T by which the logits are divided: the likeliest one for these labels (Guo et al., 2017)
        confidence: mean of the largest probability after that
        threshold: of ATC: the share of images whose negative entropy lies below it is that of the wrong ones
        feature_means, feature_deviations: of the D features, standard deviations unbiased
    """

    images: int
    class_counts: list[int]
    accuracy: float
    temperature: float
    confidence: float
    threshold: float
    feature_means: list[float]
    feature_deviations: list[float]

    @classmethod
    def of(cls, logits: ArrayLike, features: ArrayLike, labels: ArrayLike) -> SourceStatistics:
        """Those of logits (N, K), features (N, D) and labels (N,) in [0, K), N at least 2."""
        outputs, inner, classes = np.asarray(logits, float), np.asarray(features, float), np.asarray(labels)
        counts = np.bincount(classes, minlength=outputs.shape[1])
        right = outputs.argmax(1) == classes
        temperature = _temperature(outputs, classes)
        probabilities = softmax(outputs, temperature)
        certain = np.sort(negative_entropy(probabilities))
        wrong = int((~right).sum())
        return cls(
            images=len(classes),
            class_counts=counts.tolist(),
            accuracy=float(right.mean()),
            temperature=temperature,
            confidence=float(probabilities.max(1).mean()),
            threshold=float(certain[wrong]) if wrong < len(certain) else 1.0,
            feature_means=inner.mean(0).tolist(),
            feature_deviations=inner.std(0, ddof=1).tolist(),
        )


def atc(logits: ArrayLike, source: SourceStatistics) -> float:
    r"""ATC's estimate of the accuracy: the share of images that are predicted more certainly than a threshold.

    .. math:: \frac{1}{N} \sum_i 1\Big[\sum_k p_{ik} \log p_{ik} \ge t\Big], \qquad
        p_i = \mathrm{softmax}(\mathrm{logits}_i / T)

    with the threshold t at which this is the accuracy on the source's hold-out, and T its temperature.

    Shape: logits (N, K); output in [0, 1].

    Source: Garg, Balakrishnan, Lipton, Neyshabur and Sedghi, "Leveraging Unlabeled Data to Predict Out-of-Distribution
    Performance", ICLR 2022 (arXiv 2201.04234), Section 4, with negative entropy.
    """
    probabilities = softmax(np.asarray(logits, float), source.temperature)
    return float((negative_entropy(probabilities) >= source.threshold).mean())


def doc(logits: ArrayLike, source: SourceStatistics) -> float:
    r"""DoC's estimate of the accuracy: the source's, less what the mean confidence has lost.

    .. math:: \mathrm{acc}_S - \Big(\mathrm{conf}_S - \frac{1}{N} \sum_i \max_k p_{ik}\Big)

    with probabilities as of :func:`atc`, clipped to [0, 1].

    Shape: logits (N, K).

    Source: Guillory, Shankar, Ebrahimi, Darrell and Schmidt, "Predicting with Confidence on Unseen Distributions", ICCV
    2021, difference of confidences without a regression.
    """
    confidence = softmax(np.asarray(logits, float), source.temperature).max(1).mean()
    return float(np.clip(source.accuracy - source.confidence + confidence, 0, 1))


def agreement(classes: ArrayLike, others: ArrayLike) -> float:
    """The share of images that two networks classify alike, an estimate of the accuracy of either.

    The networks of the source are two trainings of one architecture. Here the second is the model itself with half of
    these images' batch-norm statistics, which costs no training.

    Shape: classes, others (N,); output in [0, 1].

    Source: Jiang, Nagarajan, Baek and Kolter, "Assessing Generalization of SGD via Disagreement", ICLR 2022.
    """
    return float((np.asarray(classes) == np.asarray(others)).mean())


def drift_p(features: ArrayLike, source: SourceStatistics) -> float:
    r"""The p-value of "these images are like the source's hold-out", by the means of features.

    .. math:: p = \min\big(1, D \min_d p_d\big)

    with :math:`p_d` Student's two-sample test of feature d, with the pooled variance: if nothing has shifted, p falls
    below α with probability α at most, up to the test's normal approximation, whatever the features' correlations.
    Only the source's moments are needed. Other shares of the classes count as a shift.

    Shape: features (N, D), N at least 2; output in [0, 1].

    Source: Rabanser, Günnemann and Lipton, "Failing Loudly: An Empirical Study of Methods for Detecting Dataset Shift",
    NeurIPS 2019, univariate tests with Bonferroni's correction; Student's test in place of Kolmogorov and Smirnov's.
    """
    from scipy.stats import ttest_ind_from_stats

    given = np.asarray(features, float)
    here = (given.mean(0), given.std(0, ddof=1), len(given))
    there = (np.array(source.feature_means), np.array(source.feature_deviations), source.images)
    if here[0].shape != there[0].shape:
        raise UserError(f"the model has {len(here[0])} features and the source's statistics {len(there[0])}")
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.nan_to_num(ttest_ind_from_stats(*here, *there).pvalue, nan=1.0)  # NaN: constant on both
    return float(min(1.0, found.min(initial=1.0) * max(found.size, 1)))


def likely(name: str, estimate: float) -> Interval:
    """Where the accuracy lies, as far as an estimate without labels tells: between the ends of its :data:`ERRORS`."""
    below, above = (min(max(estimate + error, 0.0), 1.0) for error in ERRORS[name])
    return Interval(below, above)


def advise(agreement: float | None, labelled: tuple[float, float] | None) -> Advice:
    """Whether to adapt: not where nearly all images are classified alike by both networks of :func:`agreement`, or
    right by the labels, since little is left to gain; yes where few are, which was harmful on none of the targets that
    chose :data:`ADAPT_BELOW`; between, or where neither is known, it cannot tell.

    Args:
        agreement: the share that both networks classify alike, where there is batch-norm
        labelled: the accuracy's interval from labels, all of which must then lie on one side
    """
    known = [] if agreement is None else [(agreement, agreement)]
    for lower, upper in known + ([] if labelled is None else [labelled]):
        if upper < ADAPT_BELOW:
            return "adapt"
        if lower >= LEAVE_FROM:
            return "do not adapt"
    return "cannot tell"


class LabelledAccuracy(NamedTuple):
    """An accuracy from the labels of some images, and the interval around it."""

    estimate: float
    interval: Interval


def labelled_accuracy(right: ArrayLike, confidences: ArrayLike, delta: float = 0.05) -> LabelledAccuracy:
    r"""The accuracy on N images, of which n have a label so far, with an interval that is valid whenever one stops.

    The images are labelled in random order. With :math:`y_t` 1 where the model is right on the t-th, :math:`c_t` its
    confidence there and :math:`\bar c_t` the mean confidence of the images from the t-th on,

    .. math:: z_t = y_t - \lambda_t (c_t - \bar c_t), \qquad
        \mathbb{E}[z_t \mid \text{before}] = \mu_t = \frac{N a - \sum_{s<t} y_s}{N - t + 1}

    for the accuracy a, whatever the slope :math:`\lambda_t` is that the labels before t chose: here that of the
    regression of y on c, shrunk by :data:`PRIOR_LABELS`, in [0, 1]. The better confidences tell what is right, the less
    z varies. The evidence against an accuracy of at most a is the wealth of bettors

    .. math:: E_n = \sum_j w_j \prod_{t \le n} \Big(1 + \theta_j \frac{z_t - \mu_t}{\mu_t - \underline{z}_t}\Big)

    with the least value that z can have, :math:`\underline{z}_t`. If it is true, E ever reaches :math:`2/\delta` with
    probability at most :math:`\delta/2`. The interval leaves out what is rejected so, and from the other side alike, by
    now: the accuracy lies in the intervals after all n at once with probability at least :math:`1 - \delta`.

    Args:
        delta (float): probability that the interval ever misses, in (0, 1)

    Outputs: the estimate is :math:`\lambda \bar c + \frac1n \sum_t (y_t - \lambda c_t)`, with the mean confidence of
    all images and the slope that all labels choose.

    Shape: right (n,) 0 or 1, n at most N; confidences (N,) in [0, 1], first those of the labelled images in the order
    of ``right``.

    Source: Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2024, Section 5;
    Angelopoulos et al., "Prediction-powered inference", Science 2023, and "PPI++" (arXiv 2311.01453), Section 2, for
    predictions as control variate.
    """
    seen, control = np.asarray(right, float), np.asarray(confidences, float)
    count, total = len(seen), len(control)
    lower = _fewest_right(seen, control, delta)
    upper = total - _fewest_right(1 - seen, 1 - control, delta)
    if lower > upper:  # of probability δ at most; nothing but the labels themselves is certain then
        lower, upper = int(seen.sum()), total - count + int(seen.sum())
    slope = _slopes(seen, control)[-1]
    estimate = slope * control.mean() + (seen - slope * control[:count]).mean() if count else control.mean()
    return LabelledAccuracy(
        float(np.clip(estimate, lower / total, upper / total)), Interval(lower / total, upper / total)
    )


def labels_needed(accuracy: float, images: int, delta: float = 0.05) -> int:
    """About how many labels an interval of ± :data:`HALF_WIDTH` takes at this accuracy; at most all images."""

    def is_enough(labels: int) -> bool:
        right = np.diff(np.floor(np.arange(labels + 1) * accuracy + 0.5))
        lower, upper = labelled_accuracy(right, np.zeros(images), delta).interval
        return upper - lower <= 2 * HALF_WIDTH

    return 1 + bisect.bisect_left(range(1, images), True, key=is_enough)


def softmax(logits: Floats, temperature: float = 1.0) -> Floats:
    scaled = np.exp((logits - logits.max(1, keepdims=True)) / temperature)
    probabilities: Floats = scaled / scaled.sum(1, keepdims=True)
    return probabilities


def negative_entropy(probabilities: Floats) -> Floats:
    """(N, K) -> (N,), in nats."""
    found: Floats = (probabilities * np.log(np.maximum(probabilities, np.finfo(float).tiny))).sum(1)
    return found


def _temperature(logits: Floats, labels: NDArray[Any]) -> float:
    from scipy.optimize import minimize_scalar

    def loss(log: float) -> float:
        own = softmax(logits, math.exp(log))[np.arange(len(labels)), labels]
        return float(-np.log(np.maximum(own, np.finfo(float).tiny)).mean())

    return math.exp(minimize_scalar(loss, bounds=tuple(map(math.log, TEMPERATURES)), method="bounded").x)


def _slopes(right: Floats, confidences: Floats) -> Floats:
    """The slope that the labels before each choose, and last the one that all choose: (n + 1,)."""
    seen = confidences[: len(right)]
    count = np.arange(len(right) + 1)
    y, c, yc, cc = (np.concatenate(([0.0], values.cumsum())) for values in (right, seen, right * seen, seen**2))
    at_least_one = np.maximum(count, 1)
    together, spread = yc - y * c / at_least_one, cc - c**2 / at_least_one
    spread = spread + PRIOR_LABELS * confidences.var()
    slopes: Floats = np.divide(together, spread, out=np.zeros(len(count)), where=spread > 1e-12).clip(0, 1)
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
            returns = np.where(price > 0, (values - least) / price - 1, 0.0)
        wealth = np.full(count, -math.inf)
        for stake, weight in zip(STAKES, WEIGHTS, strict=True):
            np.logaddexp(wealth, math.log(weight) + np.log1p(stake * returns).cumsum(), out=wealth)
        return not (wealth >= math.log(2 / delta)).any()

    first = int(right.sum())  # fewer are impossible
    return first + bisect.bisect_left(range(first, total - count + first), True, key=is_kept)
