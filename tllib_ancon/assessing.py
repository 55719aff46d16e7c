r"""What a model's accuracy is on images of another domain: estimates without labels, an interval with a few, and drift.

An estimate without labels rests on how predictions look, which some shifts leave as it is: none can be trusted under
every shift (Garg et al., 2022, Section 3). Accuracies are shares in [0, 1]; logits are (N, K), features (N, D).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

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
ADAPT_BELOW, LEAVE_FROM = 0.75, 0.95
"""Shares between which it cannot be told whether adapting helps, as measured."""
FEWEST_ANSWERS = FEWEST_IMAGES = 10
"""Of labels that count, and of images that tell the source's statistics or what a model is worth before adapting."""
HALF_WIDTH, PRIOR_LABELS = 0.1, 10
"""Of the interval that :func:`labels_needed` is about; labels that the control variate's slope is shrunk by."""
TEMPERATURES = (0.25, 20.0)
"""Between which that of the source is sought: where all images are right, the likeliest one would be 0."""
DRIFT = "p = {:.2g} that features have the means of the source's hold-out"


@dataclass(frozen=True)
class SourceStatistics:
    """What is kept of a model's outputs on N labelled images of its source that it was not trained on.

    Attributes:
        images: N
        class_counts: of each class's images, K numbers
        accuracy: share of the images that are classified right
        temperature: T that makes the labels likeliest when logits are divided by it (Guo et al., ICML 2017)
        confidence: mean of the largest probability after that
        threshold: of :func:`atc`
        feature_means, feature_deviations: of the D features
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
        """Those of logits, features and labels (N,) in [0, K), N at least 2."""
        from scipy.optimize import minimize_scalar
        from scipy.special import log_softmax

        outputs, inner, classes = np.asarray(logits, float), np.asarray(features, float), np.asarray(labels)

        def loss(log: float) -> float:
            return -float(log_softmax(outputs / math.exp(log), 1)[np.arange(len(classes)), classes].mean())

        bounds = tuple(map(math.log, TEMPERATURES))
        temperature = math.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x)
        accuracy, certain = float((outputs.argmax(1) == classes).mean()), _certainty(outputs, temperature)
        return cls(
            images=len(classes),
            class_counts=np.bincount(classes, minlength=outputs.shape[1]).tolist(),
            accuracy=accuracy,
            temperature=temperature,
            confidence=_confidence(outputs, temperature),
            threshold=float(np.append(np.sort(certain), 1)[round((1 - accuracy) * len(classes))]),
            feature_means=inner.mean(0).tolist(),
            feature_deviations=inner.std(0, ddof=1).tolist(),
        )


def atc(logits: ArrayLike, source: SourceStatistics) -> float:
    r"""ATC's estimate of the accuracy: the share of images that are predicted more certainly than a threshold t.

    .. math:: \frac{1}{N} \sum_i 1\Big[\sum_k p_{ik} \log p_{ik} \ge t\Big], \qquad
        p_i = \mathrm{softmax}(\mathrm{logits}_i / T)

    with the t at which this is the accuracy on the source's images. Source: Garg, Balakrishnan, Lipton, Neyshabur and
    Sedghi, "Leveraging Unlabeled Data to Predict Out-of-Distribution Performance", ICLR 2022 (arXiv 2201.04234).
    """
    return float((_certainty(logits, source.temperature) >= source.threshold).mean())


def doc(logits: ArrayLike, source: SourceStatistics) -> float:
    r"""DoC's estimate of the accuracy: the source's, less the mean confidence that was lost; in [0, 1].

    .. math:: \mathrm{acc}_S - \Big(\mathrm{conf}_S - \frac{1}{N} \sum_i \max_k p_{ik}\Big)

    with p as of :func:`atc`. Source: Guillory, Shankar, Ebrahimi, Darrell and Schmidt, "Predicting with Confidence on
    Unseen Distributions", ICCV 2021, without the regression.
    """
    return float(np.clip(source.accuracy - source.confidence + _confidence(logits, source.temperature), 0, 1))


def agreement(classes: ArrayLike, others: ArrayLike) -> float:
    """The share of images that two networks classify alike, (N,) each: an estimate of the accuracy of either.

    Source: Jiang, Nagarajan, Baek and Kolter, "Assessing Generalization of SGD via Disagreement", ICLR 2022, for two
    trainings. Here the second is the model with half of these images' batch-norm statistics, which needs none.
    """
    return float((np.asarray(classes) == np.asarray(others)).mean())


def drift_p(features: ArrayLike, source: SourceStatistics) -> float:
    r"""The p-value of "these N ≥ 2 images are like the source's", by the means of features; other class shares count.

    .. math:: p = \min\big(1, D \min_d p_d\big)

    with :math:`p_d` Student's two-sample test of feature d with the pooled variance, which needs the source's moments
    alone. Source: Rabanser, Günnemann and Lipton, "Failing Loudly", NeurIPS 2019, with Student's test in place of
    Kolmogorov and Smirnov's; Bonferroni's bound needs nothing of how features depend on each other.
    """
    from scipy.special import stdtr  # in place of scipy.stats, whose import takes a second

    given = np.asarray(features, float)
    if given.shape[1] != len(source.feature_means):
        raise UserError(f"the model has {given.shape[1]} features, and its `source` {len(source.feature_means)}")
    here, there = len(given), source.images
    squares = (here - 1) * given.var(0, ddof=1) + (there - 1) * np.square(source.feature_deviations)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(squares / (here + there - 2) * (1 / here + 1 / there))
        found = 2 * stdtr(here + there - 2, -np.abs(given.mean(0) - source.feature_means) / error)
    return float(min(1.0, np.nan_to_num(found, nan=1.0).min() * found.size))  # NaN: constant on both


def by_source(logits: ArrayLike, features: ArrayLike, source: SourceStatistics | None) -> dict[str, float]:
    """:func:`atc`, :func:`doc` and :func:`drift_p` by name, as far as there are a source, features and two images."""
    if source is None:
        return {}
    drift = {"drift_p": drift_p(features, source)} if np.size(np.asarray(features)[1:]) else {}
    return {"atc": atc(logits, source), "doc": doc(logits, source), **drift}


def without_labels(numbers: Mapping[str, float]) -> dict[str, Any]:
    """What these estimates and ``drift_p``, by name among other numbers of a source model, tell of it, ready for JSON:
    entries as of :class:`tllib_ancon.Assessment`, and ``by``, the estimate that ``accuracy`` is; empty without any."""
    estimates = {name: numbers[name] for name in ERRORS if name in numbers}
    if not estimates:
        return {}
    best = min(estimates, key=lambda name: np.ptp(ERRORS[name]))
    intervals = {name: [*likely(name, value)] for name, value in estimates.items()}
    accuracy = {"accuracy": estimates[best], "interval": intervals[best], "by": best}
    told = {"drift_p": numbers.get("drift_p"), "advice": advise(estimates.get("agreement"), None)}
    return {**accuracy, "estimates": estimates, "intervals": intervals, **told}


def in_words(result: Mapping[str, Any]) -> list[str]:
    """A line or two of what :func:`without_labels` found, where the ``result.json`` of an adaptation has it; the advice
    where there is the agreement that it goes by."""
    if (found := result.get("assessment")) is None:
        return []
    share = share_in_words(found["accuracy"], found["interval"]).lstrip()
    images = f" of the {result['held_out']} images held out" if result["held_out"] else ""
    advice = f"; advice: {found['advice']}" * ("agreement" in found["estimates"])
    told = f"before adapting: estimated accuracy {share}, without labels, by {found['by']}{images}{advice}"
    return [told, *([] if found["drift_p"] is None else ["drift: " + DRIFT.format(found["drift_p"])])]


def share_in_words(value: float, interval: Sequence[float]) -> str:
    return "{:5.1f} %, between {:.1f} and {:.1f} %".format(*(100 * share for share in (value, *interval)))


def likely(name: str, estimate: float) -> Interval:
    """Where the accuracy lies, as far as an estimate without labels tells: between the ends of its :data:`ERRORS`."""
    low, high = np.clip(np.add(estimate, ERRORS[name]), 0, 1).tolist()
    return Interval(low, high)


def advise(agreement: float | None, labelled: tuple[float, float] | None) -> Advice:
    """Whether to adapt: "adapt" where the share that :func:`agreement` is lies below :data:`ADAPT_BELOW`, "do not
    adapt" from :data:`LEAVE_FROM` on, since little is left to gain. Between, or without batch-norm, the interval of the
    accuracy from labels decides where all of it lies on one side."""
    known = [] if agreement is None else [(agreement, agreement)]
    for lower, upper in known + ([] if labelled is None else [labelled]):
        if upper < ADAPT_BELOW:
            return "adapt"
        if lower >= LEAVE_FROM:
            return "do not adapt"
    return "cannot tell"


def labelled_accuracy(right: ArrayLike, confidences: ArrayLike, delta: float = 0.05) -> tuple[float, Interval]:
    r"""An estimate of the accuracy on N images of which n have a label, and an interval, valid whenever one stops.

    The images are labelled in random order. With :math:`y_t` 1 where the model is right on the t-th, :math:`c_t` its
    confidence there and :math:`\bar c_t` the mean confidence of the images from the t-th on,

    .. math:: z_t = y_t - \lambda_t (c_t - \bar c_t), \qquad
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

    return 1 + bisect.bisect_left(range(1, images), True, key=is_enough)


def _certainty(logits: ArrayLike, temperature: float) -> Floats:
    """The negative entropy of each image's probabilities, (N,), in nats."""
    from scipy.special import entr, softmax

    found: Floats = -entr(softmax(np.asarray(logits, float) / temperature, 1)).sum(1)
    return found


def _confidence(logits: ArrayLike, temperature: float) -> float:
    from scipy.special import softmax

    return float(softmax(np.asarray(logits, float) / temperature, 1).max(1).mean())


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
            returns = np.where(price > 0, (values - least) / price - 1, 0.0)
        wealth = np.log1p(STAKES[:, None] * returns).cumsum(1) + np.log(WEIGHTS)[:, None]
        return bool((np.logaddexp.reduce(wealth) < math.log(2 / delta)).all())

    first = int(right.sum())  # fewer are impossible
    return first + bisect.bisect_left(range(first, total - count + first), True, key=is_kept)
