"""A certificate's verdict and interval are those of exact bets, and false verdicts are as rare as promised."""

import math
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.certificate.stopping import stopping_times
from tests.support.refusals import REFUSED, refused
from tllib_ancon.measures.disagreement import STAKES, STEPS, WEIGHTS, DisagreementTest

outcome_lists = st.lists(st.sampled_from([-1, 0, 1]), max_size=25)
margins = st.sampled_from([0.0, 0.01, 0.05, 0.2, 0.5])
deltas = st.sampled_from([0.01, 0.05, 0.1, 0.5])


def after(outcomes, delta=0.05, margin=0.0, **population):
    test = DisagreementTest(delta, margin, **population)
    for outcome in outcomes:
        test.update(outcome)
    return test


def naive_e_value(outcomes, prices):
    """The sum of products of bets, in exact arithmetic; the price of each label as the hypothesis sees it."""
    total = Fraction(0)
    for stake, weight in zip(STAKES, WEIGHTS, strict=True):
        wealth = Fraction(float(weight))
        share = Fraction(float(stake))
        for outcome, price in zip(outcomes, prices, strict=True):
            pay_off = Fraction(1 + outcome, 2) / price
            wealth *= 1 - share + share * pay_off
        total += wealth
    return total


def naive_prices(outcomes, total, disagreements):
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


@given(outcome_lists.filter(bool), margins)
def test_independent_draws_have_one_price(outcomes, margin):
    prices = [(1 + Fraction(margin)) / 2] * len(outcomes)
    better, _ = after(outcomes, margin=margin).log_curves
    assert np.exp(better[-1]) == pytest.approx(float(naive_e_value(outcomes, prices)), rel=1e-9)


@given(outcome_lists.filter(bool), st.integers(0, 10), st.integers(0, 30), margins)
def test_draws_without_replacement_are_the_naive_product_of_bets(outcomes, unseen, agreements, margin):
    disagreements = len(outcomes) + unseen
    images = disagreements + agreements
    test = after(outcomes, margin=margin, disagreements=disagreements, images=images)
    total = math.floor(Fraction(str(margin)) * images)
    for curve, sign in zip(test.log_curves, (1, -1), strict=True):
        e_value = np.exp(curve[-1])
        signed = [sign * outcome for outcome in outcomes]
        prices = naive_prices(signed, total, disagreements)
        if prices is None:
            assert e_value == math.inf
            continue
        free = [outcome for price, outcome in zip(prices, signed, strict=True) if price <= 0]
        assert {*free} <= {-1}
        positive_prices = [price or Fraction(1) for price in prices]
        assert e_value == pytest.approx(float(naive_e_value(signed, positive_prices)), rel=1e-9)


def scanned(test, outcomes, least, most):
    """The first total that no prefix of the outcomes rejects, one above ``most`` if there is none."""
    level = math.log(test.threshold)
    totals = range(least, most + 1)
    accepted = (total for total in totals if (test._against(outcomes, total) < level).all())
    return next(accepted, most + 1)


@given(st.integers(0, 20), st.integers(0, 20), st.integers(1, 9), deltas)
def test_an_interval_holds_what_is_not_rejected(better, worse, unseen, delta):
    outcomes = np.repeat([1, -1], [better, worse]).astype(np.int8)
    images = len(outcomes) + unseen
    test = after(outcomes.tolist(), delta, disagreements=images, images=images)
    least = better - worse - unseen
    most = better - worse + unseen
    lower = scanned(test, outcomes, least, most)
    upper = -scanned(test, -outcomes, -most, -least)
    if lower > upper:
        lower, upper = least, most
    assert test.interval == (lower / images, upper / images)


@given(outcome_lists, deltas)
def test_an_end_without_a_last_draw_is_the_step_outside(outcomes, delta):
    test = after(outcomes, delta)
    total = round(test.interval.lower * STEPS)
    assert total == -STEPS or scanned(test, np.array(outcomes, np.int8), total, total + 1) == total + 1


@pytest.mark.parametrize("population", [(-1, -1, -1, -1, 1), (1, 1, -1, -1, 0, 0), (1, 1, 1, -1, 0)])
def test_the_expected_e_value_under_the_hypothesis_never_exceeds_one(population):
    """Over all orders of a population at the bound, and over all prefixes: the definition of an e-process."""
    total = sum(population)
    orders = np.array(list(set(permutations(population))), dtype=np.int8)
    test = DisagreementTest(disagreements=len(population), images=len(population))
    for bound in (total, total + 1):
        e_values = np.exp(test._against(orders, bound))
        assert (e_values.mean(axis=0) <= 1 + 1e-12).all()
    refuted = np.exp(test._against(orders, total - 1))
    assert np.isinf(refuted[:, -1]).all()


@given(outcome_lists.filter(bool), st.integers(0, 40), margins, deltas)
def test_with_all_labels_the_verdict_and_the_interval_are_exact(outcomes, agreements, margin, delta):
    images = len(outcomes) + agreements
    test = after(outcomes, delta, margin, disagreements=len(outcomes), images=images)
    difference = Fraction(sum(outcomes), images)
    exact_margin = Fraction(str(margin))
    expected = "undecided"
    if abs(difference) > exact_margin:
        expected = "better" if difference > 0 else "worse"
    assert test.verdict == expected
    assert list(test.interval) == pytest.approx([float(difference)] * 2)
    assert test.settled
    assert test.remaining == 0
    with refused(f"all {len(outcomes)} disagreements have their label; read the verdict"):
        test.update(1)


@given(outcome_lists, st.integers(0, 40), margins, deltas, st.booleans())
def test_the_verdict_is_what_the_interval_says_and_the_other_sign_is_the_other_verdict(
    outcomes, unseen, margin, delta, endless
):
    population = {}
    if not endless:
        total = len(outcomes) + unseen
        population = {"disagreements": total + 1, "images": total + 9}
    test = after(outcomes, delta, margin, **population)
    lower, upper = test.interval
    rejected = [(curve >= math.log(test.threshold)).any() for curve in test.log_curves]
    if not all(rejected):
        assert (test.verdict == "better") == (lower >= margin and bool(rejected[0]))
        assert (test.verdict == "worse") == (upper <= -margin and bool(rejected[1]))
    mirror = after([-outcome for outcome in outcomes], delta, margin, **population)
    assert np.array_equal(test.log_curves, mirror.log_curves[::-1])
    assert mirror.verdict == {"better": "worse", "worse": "better", "undecided": "undecided"}[test.verdict]
    assert mirror.interval == (-upper, -lower)


@pytest.mark.parametrize(("_", "arguments", "message"), REFUSED["certification"])
def test_what_is_refused(_, arguments, message):
    with refused(message):
        DisagreementTest(**arguments)


@pytest.mark.parametrize("outcome", [2, 0.5, math.nan, "better"])
def test_an_outcome_is_better_worse_or_neither(outcome):
    with refused(f"an outcome must be 1 (adapted right), -1 (source right) or 0 (neither), got {outcome!r}"):
        DisagreementTest().update(outcome)


def test_two_thousand_null_streams_have_few_false_verdicts_whenever_one_stops():
    """A stream's verdict is the first that ever falls, so that this is the rate at the worst stopping time; the models
    are equally good."""
    generator = np.random.default_rng(0)
    population = np.repeat([1, -1], [100, 100]).astype(np.int8)
    orders = generator.permuted(np.tile(population, (2000, 1)), axis=1)
    finite = stopping_times(orders, disagreements=200, images=1000)
    endless = stopping_times(generator.choice(population, size=(2000, 200)))
    for streams in (finite, endless):
        assert 0.002 < (streams.verdicts != 0).mean() <= 0.05
