from __future__ import annotations

import pytest

from tllib_ancon.paper.mce import ALEXNET_ERRORS, mean_corruption_error


def accuracies(error_of) -> dict[str, dict[int, float]]:
    return {name: {severity: 100 - error_of(name, severity) for severity in range(1, 6)} for name in ALEXNET_ERRORS}


def test_alexnet_has_an_mce_of_100() -> None:
    spread = {1: -20, 2: -10, 3: 0, 4: 10, 5: 20}
    assert mean_corruption_error(accuracies(lambda name, s: ALEXNET_ERRORS[name] + spread[s])) == pytest.approx(100)


def test_it_is_the_mean_over_corruptions_of_ratios() -> None:
    expected = sum(100 * 50 / error for error in ALEXNET_ERRORS.values()) / 15
    assert mean_corruption_error(accuracies(lambda name, s: 50)) == pytest.approx(expected)


def test_all_corruptions_and_severities_are_needed() -> None:
    measured = accuracies(lambda name, s: 50)
    del measured["frost"][3]
    assert mean_corruption_error(measured) is None
    assert mean_corruption_error({}) is None


def test_further_corruptions_change_nothing() -> None:
    measured = accuracies(lambda name, s: 50)
    assert mean_corruption_error({**measured, "spatter": {1: 0.0}}) == mean_corruption_error(measured)
