"""Errors are clustered by source and by target, p-values are corrected by Holm, and a claim is yes, no or unclear."""

import numpy as np
import pytest

from benchmarks import statistics


def test_independent_units_have_the_usual_standard_error():
    differences = np.array([1.0, 2.0, 4.0, 5.0])
    item = statistics.estimate(differences, [*"abcd"], [*"wxyz"])
    assert item.mean == 3
    assert item.error == pytest.approx(differences.std(ddof=1) / 2)


def test_the_larger_error_of_source_and_target_counts():
    differences = [1.0, 1.0, 5.0, 5.0]
    by_source = statistics.estimate(differences, [*"aabb"], [*"wxyz"])
    assert by_source.error == pytest.approx(2)  # two independent numbers, 1 and 5
    assert statistics.estimate(differences, [*"wxyz"], [*"aabb"]) == by_source
    assert by_source.error > statistics.estimate(differences, [*"abcd"], [*"wxyz"]).error


def test_a_single_source_and_target_has_no_error_and_is_unclear():
    item = statistics.estimate([3.0], ["a"], ["w"])
    assert np.isnan(item.error)
    assert statistics.verdict(item.mean, item.p) == "unclear"


def test_holm():
    assert statistics.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])


def test_verdicts():
    assert statistics.verdict(2, 0.01) == "yes"
    assert statistics.verdict(-2, 0.01) == "no"
    assert statistics.verdict(2, 0.06) == "unclear"
