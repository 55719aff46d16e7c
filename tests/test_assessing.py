"""Intervals and the test of drift hold as often as they say, whatever the model is."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student_t
from scipy.stats import ttest_ind

from tests.refusals import refused
from tllib_ancon.measures.indicators import (
    SourceStatistics,
    agreement,
    before_adapting,
    drift_p,
    in_words,
    indicators,
    labelled_accuracy,
    labels_to_estimate_accuracy,
    student_p,
)

STREAMS = 300


def population(generator, images, accuracy, sharp):
    """Right or not, in random order, and confidences that tell it the better the sharper they are."""
    right = (generator.random(images) < accuracy).astype(float)
    noise = generator.random(images)
    return right, np.clip(sharp * right + (1 - sharp) * noise, 0, 1)


@pytest.mark.parametrize(("accuracy", "sharp"), [(0.1, 0.7), (0.6, 0.0), (0.95, 0.7)])
def test_the_interval_holds_after_every_label_at_once(accuracy, sharp):
    """What no label before left out is in all intervals so far: the last one is their intersection."""
    generator = np.random.default_rng(0)
    missed = 0
    for _ in range(STREAMS):
        right, confidences = population(generator, 400, accuracy, sharp)
        lower, upper = labelled_accuracy(right[:150], confidences, 0.1)[1]
        missed += not lower - 1e-9 <= right.mean() <= upper + 1e-9
    assert missed <= 0.1 * STREAMS + 3 * math.sqrt(STREAMS * 0.1 * 0.9)


def test_confidences_that_tell_what_is_right_shorten_the_interval_and_others_cost_little():
    def width(sharp, constant=False):
        generator = np.random.default_rng(1)
        total = 0.0
        for _ in range(20):
            right, confidences = population(generator, 600, 0.7, sharp)
            lower, upper = labelled_accuracy(right[:100], confidences * (not constant))[1]
            total += upper - lower
        return total / 20

    plain = width(0.0, constant=True)
    assert width(0.7) < 0.75 * plain
    assert width(0.0) < 1.1 * plain


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(0, 30), st.randoms(use_true_random=False))
def test_the_interval_holds_what_labels_leave_possible_and_is_exact_with_all(outcomes, unseen, random):
    right = np.array(outcomes, float)
    confidences = np.array([random.random() for _ in range(len(right) + unseen)])
    estimate, (lower, upper) = labelled_accuracy(right, confidences)
    least = right.sum() / len(confidences)
    most = (right.sum() + unseen) / len(confidences)
    assert least - 1e-9 <= lower <= estimate <= upper <= most + 1e-9
    mirrored = labelled_accuracy(1 - right, 1 - confidences)[1]
    assert (lower, upper) == pytest.approx((1 - mirrored.upper, 1 - mirrored.lower))


def test_the_order_of_images_without_a_label_does_not_matter():
    right, confidences = population(np.random.default_rng(1), 600, 0.7, 0.7)
    estimate, interval = labelled_accuracy(right[:100], confidences)
    reordered = np.concatenate([confidences[:100], np.sort(confidences[100:])])
    assert labelled_accuracy(right[:100], reordered) == (pytest.approx(estimate), interval)


def test_about_so_many_labels_are_needed():
    at_95, at_70, at_50 = [labels_to_estimate_accuracy(accuracy, 5000) for accuracy in (0.95, 0.7, 0.5)]
    assert at_95 < at_70 < at_50 < 1000
    assert labels_to_estimate_accuracy(0.5, 50) < 50
    assert labels_to_estimate_accuracy(0.5, 10**6) < 1200
    right, confidences = population(np.random.default_rng(3), 5000, 0.7, 0.0)
    lower, upper = labelled_accuracy(right[: labels_to_estimate_accuracy(0.7, 5000)], confidences)[1]
    assert upper - lower == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("images", [1, 2, 12, 20, 40, 63])
@pytest.mark.parametrize("accuracy", [0.0, 0.5, 0.9])
def test_as_many_labels_are_needed_as_make_the_interval_short_enough(images, accuracy):
    def width(labels):
        totals = [math.floor(accuracy * n + 0.5) for n in range(labels + 1)]
        right = np.diff(totals)
        lower, upper = labelled_accuracy(right, np.zeros(images))[1]
        return upper - lower

    needed = labels_to_estimate_accuracy(accuracy, images)
    assert needed == images or width(needed) <= 0.1
    assert needed == 1 or width(needed - 1) > 0.1


def skewed(generator, images, features=60):
    """Correlated and mostly 0, as features after a rectifier."""
    common = generator.normal(size=(images, 1))
    return np.maximum(generator.normal(size=(images, features)) + common - 1, 0)


@pytest.mark.parametrize(("there", "here"), [(60, 800), (800, 60), (300, 300)])
def test_without_drift_the_test_says_drift_as_rarely_as_its_level(there, here):
    generator = np.random.default_rng(0)
    found = 0
    for _ in range(400):
        source = SourceStatistics.of(skewed(generator, there))
        found += drift_p(skewed(generator, here), source) < 0.05
    assert found <= 0.05 * 400 + 3 * math.sqrt(400 * 0.05 * 0.95)


def test_a_shift_of_one_feature_is_found():
    generator = np.random.default_rng(0)
    source = SourceStatistics.of(skewed(generator, 200))
    moved = skewed(generator, 200)
    moved[:, 7] += 0.5
    assert drift_p(moved, source) < 1e-3
    few = SourceStatistics.of(moved[:30])
    by_scipy = 60 * ttest_ind(moved[:30], 1.5 * moved[-90:]).pvalue.min()
    assert drift_p(1.5 * moved[-90:], few) == pytest.approx(by_scipy)
    assert by_scipy < 1
    constant = np.zeros((50, 60))
    same = SourceStatistics.of(constant)
    assert drift_p(constant, same) == 1


def test_a_p_value_that_is_no_number_of_64_bits_is_below_a_bound():
    for value, text in ((0.0, "drift: p < 1e-300 that features"), (2.5e-202, "drift: p = 2.5e-202 that features")):
        (line,) = (line for line in in_words({"class_frequencies": [0.5, 0.5], "drift_p": value}, 9) if "drift" in line)
        assert line.startswith(text)


def test_p_values_are_those_of_student():
    statistics = np.array([0.0, 1e-9, 0.3, -2.0, 40.0, np.nan])
    for degrees_of_freedom in (1, 2, 7, 500):
        expected = 2 * student_t.sf(np.abs(statistics), degrees_of_freedom)
        assert student_p(statistics, degrees_of_freedom) == pytest.approx(expected, rel=1e-6, nan_ok=True)


def test_indicators_of_predictions():
    features = skewed(np.random.default_rng(0), 30)
    source = SourceStatistics.of(skewed(np.random.default_rng(1), 40))
    frequencies = {"class_frequencies": [0.5, 0.0, 0.5, 0.0]}
    assert indicators([0, 2], 4, features, None) == frequencies
    assert indicators([0, 2], 4, features[:1], source) == frequencies
    assert indicators([0, 2], 4, [], source) == frequencies
    drift = drift_p(features[:2], source)
    assert indicators([0, 2], 4, features[:2], source) == {**frequencies, "drift_p": drift}
    assert agreement([0, 1, 2, 3], [0, 1, 0, 0]) == 0.5
    with refused("the model has 3 features, and its `source` 60; pass the source of this model"):
        drift_p(features[:, :3], source)


def test_indicators_in_words():
    values = {"agreement": 0.9, "aetta": 0.65, "class_frequencies": [0.75, 0.0, 0.25], "drift_p": 0.0123}
    first = (
        "indicators: agreement 90.0 %, aetta 65.0 %, 2 of 3 classes predicted, the most frequent for 75.0 % of images"
    )
    last = "to know the accuracy to ± 5 points, label about 1,234 random images"
    assert in_words(values, 1234) == [
        first,
        "contradiction: agreement and aetta differ by 25.0 points",
        "drift: p = 0.012 that features have the means of the source's hold-out",
        last,
    ]
    near = {"agreement": 0.75, "aetta": 0.55, "class_frequencies": [1.0]}
    alone = {"class_frequencies": [1.0]}
    shares = "1 of 1 classes predicted, the most frequent for 100.0 % of images"
    assert in_words(near, 1234)[0] == f"indicators: agreement 75.0 %, aetta 55.0 %, {shares}"
    assert in_words({**near, "aetta": 0.56}, 1234)[1] == last
    assert in_words(alone, 1234) == [f"indicators: {shares}", last]
    result = {"assessment": {"indicators": alone, "labels_needed": 1234}}
    unreliable = "before adapting: no reliable estimate of the accuracy without labels"
    assert before_adapting(result) == [unreliable, f"indicators: {shares}", last]
    assert before_adapting({}) == []
