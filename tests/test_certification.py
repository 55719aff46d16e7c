from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tllib_ancon.certification import STAKES, WEIGHTS, DisagreementTest
from tllib_ancon.errors import UserError
from tllib_ancon.stopping_times import labels_needed, stopping_times

SETTINGS = settings(max_examples=60, deadline=None)
outcome_lists = st.lists(st.sampled_from([-1, 0, 1]), max_size=25)
margins = st.sampled_from([0.0, 0.01, 0.05, 0.2, 0.5])
deltas = st.sampled_from([0.01, 0.05, 0.1, 0.5])


def after(outcomes: list[int], delta: float = 0.05, margin: float = 0.0, **population: int) -> DisagreementTest:
    test = DisagreementTest(delta, margin, **population)
    for outcome in outcomes:
        test.update(outcome)
    return test


def naive_e_value(outcomes: list[int], prices: list[Fraction]) -> Fraction:
    """The sum of products of bets, in exact arithmetic; the price of each label as the hypothesis sees it."""
    total = Fraction(0)
    for stake, weight in zip(STAKES, WEIGHTS, strict=True):
        wealth = Fraction(float(weight))
        for outcome, price in zip(outcomes, prices, strict=True):
            wealth *= 1 - Fraction(float(stake)) + Fraction(float(stake)) * Fraction(1 + outcome, 2) / price
        total += wealth
    return total


def naive_prices(outcomes: list[int], total: int, disagreements: int) -> list[Fraction] | None:
    """Largest expectation of (1 + y) / 2 at each draw if all M outcomes sum to at most ``total``; None: they cannot."""
    prices = []
    for step in range(len(outcomes) + 1):
        left = disagreements - step
        missing = total - sum(outcomes[:step])
        if missing < -left:
            return None
        if step < len(outcomes):
            prices.append(min(Fraction(1), (1 + Fraction(missing, left)) / 2))
    return prices


@SETTINGS
@given(outcome_lists, margins)
def test_independent_draws_are_the_naive_product_of_bets(outcomes: list[int], margin: float) -> None:
    test = after(outcomes, margin=margin)
    prices = [(1 + Fraction(margin)) / 2] * len(outcomes)
    assert test.e_better == pytest.approx(float(naive_e_value(outcomes, prices)), rel=1e-9)
    assert test.e_worse == pytest.approx(float(naive_e_value([-y for y in outcomes], prices)), rel=1e-9)


@SETTINGS
@given(outcome_lists.filter(bool), st.integers(0, 10), st.integers(0, 30), margins)
def test_draws_without_replacement_are_the_naive_product_of_bets(
    outcomes: list[int], unseen: int, agreements: int, margin: float
) -> None:
    disagreements = len(outcomes) + unseen
    images = disagreements + agreements
    test = after(outcomes, margin=margin, disagreements=disagreements, images=images)
    total = math.floor(Fraction(str(margin)) * images)
    for e_value, signed in ((test.e_better, outcomes), (test.e_worse, [-y for y in outcomes])):
        prices = naive_prices(signed, total, disagreements)
        if prices is None:
            assert e_value == math.inf
        else:
            zero_prices = [price for price, y in zip(prices, signed, strict=True) if price == 0 and y > -1]
            assert not zero_prices
            safe = [price or Fraction(1) for price in prices]
            assert e_value == pytest.approx(float(naive_e_value(signed, safe)), rel=1e-9)


@pytest.mark.parametrize("total", [-3, 0, 2])
def test_the_expected_e_value_under_the_hypothesis_never_exceeds_one(total: int) -> None:
    """Over all orders of a population at the bound, and over all prefixes: the definition of an e-process."""
    population = {-3: (-1, -1, -1, -1, 1), 0: (1, 1, -1, -1, 0, 0), 2: (1, 1, 1, -1, 0)}[total]
    orders = np.array(list(set(permutations(population))), dtype=np.int8)
    test = DisagreementTest(disagreements=len(population), images=len(population))
    for bound in (total, total + 1):
        e_values = np.exp(test._population.log_e_values(orders, bound))
        assert (e_values.mean(axis=0) <= 1 + 1e-12).all()
    refuted = np.exp(test._population.log_e_values(orders, total - 1))
    assert np.isinf(refuted[:, -1]).all()


@SETTINGS
@given(outcome_lists.filter(bool), st.integers(0, 40), margins, deltas)
def test_with_all_labels_the_verdict_and_the_interval_are_exact(
    outcomes: list[int], agreements: int, margin: float, delta: float
) -> None:
    images = len(outcomes) + agreements
    test = after(outcomes, delta, margin, disagreements=len(outcomes), images=images)
    difference = Fraction(sum(outcomes), images)
    exact = Fraction(str(margin))
    expected = "better" if difference > exact else "worse" if difference < -exact else "undecided"
    assert test.verdict == expected
    assert test.interval == (pytest.approx(float(difference)), pytest.approx(float(difference)))
    assert test.settled
    assert test.remaining == 0
    with pytest.raises(UserError, match="there is no further one"):
        test.update(1)


@SETTINGS
@given(outcome_lists, st.integers(0, 40), margins, deltas, st.booleans())
def test_the_verdict_is_what_the_interval_says(
    outcomes: list[int], unseen: int, margin: float, delta: float, endless: bool
) -> None:
    population = {} if endless else {"disagreements": len(outcomes) + unseen + 1, "images": len(outcomes) + unseen + 9}
    test = after(outcomes, delta, margin, **population)
    lower, upper = test.interval
    assert lower <= upper
    rejected = [(curve >= math.log(test.threshold)).any() for curve in test.log_curves]
    if not all(rejected):
        assert (test.verdict == "better") == (lower >= margin and bool(rejected[0]))
        assert (test.verdict == "worse") == (upper <= -margin and bool(rejected[1]))
    if test.verdict == "undecided" and not endless:
        assert lower <= margin + 1e-12
        assert upper >= -margin - 1e-12


@SETTINGS
@given(outcome_lists, margins, st.booleans())
def test_the_other_sign_is_the_other_verdict(outcomes: list[int], margin: float, endless: bool) -> None:
    population = {} if endless else {"disagreements": 30, "images": 90}
    test = after(outcomes, margin=margin, **population)
    mirror = after([-y for y in outcomes], margin=margin, **population)
    assert (test.e_better, test.e_worse) == (mirror.e_worse, mirror.e_better)
    swapped = {"better": "worse", "worse": "better", "undecided": "undecided"}
    assert mirror.verdict == swapped[test.verdict]
    assert mirror.interval == (-test.interval.upper, -test.interval.lower)


def test_the_interval_shrinks_with_every_label() -> None:
    outcomes = ([1] * 3 + [-1] + [0]) * 12
    intervals = [after(outcomes[:n], disagreements=70, images=100).interval for n in range(len(outcomes))]
    for earlier, later in pairwise(intervals):
        assert earlier.lower <= later.lower <= later.upper <= earlier.upper
    assert intervals[-1].lower > 0


def test_nothing_is_known_before_the_first_label() -> None:
    test = DisagreementTest(disagreements=30, images=300)
    assert (test.e_better, test.e_worse, test.verdict) == (1.0, 1.0, "undecided")
    assert test.interval == (-0.1, 0.1)
    assert math.isnan(test.estimate)
    assert not test.settled
    assert DisagreementTest().interval == (-1.0, 1.0)
    assert DisagreementTest().remaining is None


@pytest.mark.parametrize(("sign", "verdict"), [(1, "better"), (-1, "worse")])
def test_labels_that_all_agree_decide_after_ten(sign: int, verdict: str) -> None:
    assert after([sign] * 9).verdict == "undecided"
    assert after([sign] * 10).verdict == verdict
    assert after([sign] * 10).threshold == 40
    assert after([sign] * 3, disagreements=5, images=100).verdict == verdict  # the other two cannot undo it
    assert after([sign] * 2, disagreements=5, images=100).verdict == "undecided"


def test_zeros_alone_decide_nothing() -> None:
    assert after([0] * 500).verdict == "undecided"
    assert after([0] * 500).e_better == pytest.approx(1)
    exhausted = after([0] * 50, disagreements=50, images=60)
    assert (exhausted.verdict, exhausted.interval) == ("undecided", (0.0, 0.0))
    narrow = after([0] * 500, margin=0.1)
    assert narrow.e_better < 1
    assert narrow.e_worse < 1


def test_the_margin_is_a_difference_of_accuracy_over_all_images() -> None:
    """15 of 20 disagreements gain, 5 lose: 10 of 1,000 images, one point."""
    outcomes = [1] * 15 + [-1] * 5
    population = {"disagreements": 20, "images": 1000}
    assert after(outcomes, margin=0.009, **population).verdict == "better"
    assert after(outcomes, margin=0.01, **population).verdict == "undecided"
    assert after(outcomes, margin=0.01, **population).interval == (0.01, 0.01)
    assert after(outcomes, **population).estimate == pytest.approx(0.01)


def test_a_margin_that_the_disagreements_cannot_exceed_is_settled_at_once() -> None:
    test = DisagreementTest(margin=0.05, disagreements=20, images=1000)
    assert test.settled
    assert test.verdict == "undecided"


def test_an_e_value_beyond_floats_is_infinite_and_no_warning() -> None:
    assert after([1] * 2000).e_better == math.inf
    assert after([1] * 2000).e_worse == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("delta", [0, 1, -0.1, 1.5, math.nan, math.inf])
def test_delta_out_of_range(delta: float) -> None:
    with pytest.raises(UserError, match="`delta`"):
        DisagreementTest(delta=delta)


@pytest.mark.parametrize("margin", [-0.01, 1, 1.5, math.nan, math.inf])
def test_margin_out_of_range(margin: float) -> None:
    with pytest.raises(UserError, match="`margin`"):
        DisagreementTest(margin=margin)


@pytest.mark.parametrize("population", [{"images": 5}, {"disagreements": 5}])
def test_one_count_alone(population: dict[str, int]) -> None:
    with pytest.raises(UserError, match="pass both"):
        DisagreementTest(**population)


@pytest.mark.parametrize(("disagreements", "images"), [(0, 5), (6, 5), (-1, 5)])
def test_counts_that_do_not_fit(disagreements: int, images: int) -> None:
    with pytest.raises(UserError, match="between 1 and `images`"):
        DisagreementTest(disagreements=disagreements, images=images)


@pytest.mark.parametrize("outcome", [2, -2, 0.5, math.nan, "better", None])
def test_an_outcome_that_is_none(outcome: object) -> None:
    with pytest.raises(UserError, match="an outcome is 1"):
        DisagreementTest().update(outcome)  # type: ignore[arg-type]


@SETTINGS
@given(st.integers(0, 10**6), st.integers(1, 40), margins, st.booleans())
def test_stopping_times_are_those_of_one_test_at_a_time(seed: int, length: int, margin: float, endless: bool) -> None:
    generator = np.random.default_rng(seed)
    share = generator.random()
    streams = generator.choice([1, 0, -1], p=[0.9 * share, 0.1, 0.9 * (1 - share)], size=(4, length))
    population = {} if endless else {"disagreements": length + seed % 9, "images": length + seed % 9 + seed % 50}
    ends = stopping_times(streams, 0.1, margin, **population)
    for outcomes, labels, verdict in zip(streams.tolist(), ends.labels, ends.verdicts, strict=True):
        test = after(outcomes[:labels], 0.1, margin, **population)
        assert test.verdict == {1: "better", -1: "worse", 0: "undecided"}[int(verdict)]
        assert labels == length or test.verdict != "undecided"
        assert after(outcomes[: labels - 1], 0.1, margin, **population).verdict == "undecided"


def test_long_streams_are_looked_at_to_their_end() -> None:
    late = np.concatenate([np.tile([1, -1], 1000), np.ones(600, dtype=int)])[None]
    ends = stopping_times(late)
    assert ends.verdicts.tolist() == [1]
    assert 2000 < ends.labels[0] < 2600
    assert after(late[0, : ends.labels[0]].tolist()).verdict == "better"
    assert after(late[0, : ends.labels[0] - 1].tolist()).verdict == "undecided"
    assert stopping_times(np.zeros((2, 0), dtype=int)).labels.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("outcomes", "message"), [([[2]], "matrix"), ([1, 1], "matrix"), ([[1] * 9], "9 labels, but there are 5")]
)
def test_streams_that_are_none(outcomes: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        stopping_times(outcomes, disagreements=5, images=9)  # type: ignore[arg-type]


@pytest.mark.parametrize("decisive", [1.0, 0.5])
def test_two_thousand_null_streams_have_few_false_verdicts_whenever_one_stops(decisive: float) -> None:
    """A stream's verdict is the first that ever falls, so that this is the rate at the worst stopping time."""
    generator = np.random.default_rng(0)
    half = [decisive / 2, 1 - decisive, decisive / 2]
    endless = stopping_times(generator.choice([1, 0, -1], p=half, size=(2000, 200)))
    assert 0.002 < (endless.verdicts != 0).mean() <= 0.05
    population = np.repeat([1, 0, -1], [round(200 * share) for share in half])
    orders = generator.permuted(np.tile(population, (2000, 1)), axis=1)
    finite = stopping_times(orders, disagreements=200, images=1000)
    assert 0.002 < (finite.verdicts != 0).mean() <= 0.05


def test_a_difference_at_the_margin_is_within_it_for_two_thousand_streams() -> None:
    """20 more gains than losses among 1,000 images, at a margin of two points."""
    population = np.repeat([1, -1], [110, 90])
    orders = np.random.default_rng(1).permuted(np.tile(population, (2000, 1)), axis=1)
    ends = stopping_times(orders, margin=0.02, disagreements=200, images=1000)
    assert (ends.verdicts != 0).mean() <= 0.05


def test_the_interval_holds_the_truth_at_every_moment_of_nearly_all_streams() -> None:
    """The interval leaves out the true total exactly where one of the two hypotheses at it is rejected."""
    population = np.repeat([1, 0, -1], [25, 5, 10]).astype(np.int8)
    orders = np.random.default_rng(2).permuted(np.tile(population, (2000, 1)), axis=1)
    test = DisagreementTest(0.2, disagreements=40, images=80)
    curves = [test._population.log_e_values(sign * orders, sign * 15) for sign in (1, -1)]
    left_out = np.maximum(*curves) >= math.log(test.threshold)
    missed = left_out.any(axis=1)
    assert 0.02 < missed.mean() <= 0.2
    for order, moments in zip(orders[missed][:2].tolist(), left_out[missed][:2], strict=True):
        interval = after(order[: moments.argmax() + 1], 0.2, disagreements=40, images=80).interval
        assert not interval.lower <= 15 / 80 <= interval.upper
    for order in orders[~missed][:2].tolist():
        intervals = [after(order[:n], 0.2, disagreements=40, images=80).interval for n in range(0, 40, 2)]
        assert all(interval.lower <= 15 / 80 <= interval.upper for interval in intervals)


def test_labels_needed_fall_with_the_share_in_favour() -> None:
    needed = [labels_needed(share, 2000, 5000) for share in (0.6, 0.7, 0.8, 1.0)]
    medians = [median for median, _ in needed]
    assert medians == sorted(medians, reverse=True)
    assert all(median <= ninetieth for median, ninetieth in needed)
    assert needed[-1] == (10, 10)
    assert 100 < medians[0] < 300
    assert labels_needed(0.7, 2000, 5000) == labels_needed(0.7, 2000, 5000)


def test_labels_needed_count_the_labels_that_decide_nothing() -> None:
    (all_decisive,) = labels_needed(0.8, 2000, 5000, quantiles=(0.5,))
    (half_decisive,) = labels_needed(0.8, 2000, 5000, decisive=0.5, quantiles=(0.5,))
    assert all_decisive is not None
    assert half_decisive is not None
    assert 1.5 * all_decisive < half_decisive < 3 * all_decisive


def test_a_difference_within_the_margin_needs_more_labels_than_there_are() -> None:
    assert labels_needed(0.5, 200, 1000) == (None, None)
    assert labels_needed(0.6, 200, 1000, margin=0.04) == (None, None)
    (median,) = labels_needed(0.6, 200, 1000, margin=0.039, quantiles=(0.5,))
    assert median is not None
    assert median <= 200


@pytest.mark.parametrize(("favouring", "decisive", "name"), [(1.1, 1, "favouring"), (0.6, math.nan, "decisive")])
def test_shares_out_of_range(favouring: float, decisive: float, name: str) -> None:
    with pytest.raises(UserError, match=f"`{name}`"):
        labels_needed(favouring, 10, 20, decisive=decisive)
