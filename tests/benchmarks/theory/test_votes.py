from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.theory.votes import (
    ensemble_error_bound,
    majority_error,
    marginal_total_variation,
    simulate_ensemble_error,
    xi,
)
from tllib_ancon.errors import UserError

SETTINGS = settings(max_examples=100, deadline=None)
accuracy_lists = st.lists(st.floats(0, 1), min_size=1, max_size=9)


def naive_majority_error(accuracies: list[float]) -> float:
    """Sum over all outcomes of the votes."""
    total = 0.0
    for outcome in itertools.product([0, 1], repeat=len(accuracies)):
        if 2 * sum(outcome) <= len(accuracies):
            total += math.prod(p if right else 1 - p for p, right in zip(accuracies, outcome, strict=True))
    return total


@given(z=st.floats(0.5, 1))
@SETTINGS
def test_xi_is_the_formula_and_what_the_chernoff_bound_gives(z: float) -> None:
    assert float(xi(z)) == pytest.approx(2 * z - 1 - math.log(2 * z), abs=1e-15)
    q = 0.5
    assert -float(xi(z)) / 2 == pytest.approx(q - z - q * math.log(q / z), abs=1e-14)


def test_xi_increases_from_zero() -> None:
    rates = xi(torch.linspace(0.5, 1, 101))
    assert rates[0] == 0
    assert (rates.diff() > 0).all()
    assert rates.dtype == torch.float64


@pytest.mark.parametrize("z", [0.49, 1.01, math.nan, torch.tensor([0.7, 0.2])])
def test_xi_has_a_domain(z: float | torch.Tensor) -> None:
    with pytest.raises(UserError, match="defined for a mean accuracy"):
        xi(z)


@given(accuracies=accuracy_lists)
@SETTINGS
def test_majority_error_sums_over_all_outcomes(accuracies: list[float]) -> None:
    error = majority_error(torch.tensor(accuracies, dtype=torch.float64))
    assert error == pytest.approx(naive_majority_error(accuracies), abs=1e-12)


@given(accuracies=st.lists(st.floats(0, 1), min_size=1, max_size=60))
@settings(max_examples=200, deadline=None)
def test_theorem_3_1_holds_exactly_for_heterogeneous_votes(accuracies: list[float]) -> None:
    values = torch.tensor(accuracies, dtype=torch.float64)
    if values.mean() <= 0.5:
        return
    assert majority_error(values) <= float(ensemble_error_bound(len(values), values.mean())) + 1e-12


@pytest.mark.parametrize("wrong", ["uniform", "adversarial"])
@pytest.mark.parametrize(("num_votes", "num_classes"), [(3, 2), (9, 5), (40, 12)])
def test_theorem_3_1_holds_in_simulation(wrong: str, num_votes: int, num_classes: int) -> None:
    generator = torch.Generator().manual_seed(num_votes)
    accuracies = torch.linspace(0.3, 1, num_votes)
    error = simulate_ensemble_error(accuracies, num_classes, 4000, generator, wrong)
    assert error <= float(ensemble_error_bound(num_votes, accuracies.mean())) + 0.01


@pytest.mark.parametrize("num_classes", [2, 6])
def test_adversarial_votes_err_as_often_as_the_exact_sum_says(num_classes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    accuracies = torch.tensor([0.9, 0.4, 0.6, 0.55, 0.7, 0.3])
    simulated = simulate_ensemble_error(accuracies, num_classes, 40000, generator, "adversarial")
    assert simulated == pytest.approx(majority_error(accuracies), abs=0.01)


def test_wrong_votes_that_disagree_err_less() -> None:
    generator = torch.Generator().manual_seed(0)
    accuracies = torch.full((9,), 0.45)
    uniform = simulate_ensemble_error(accuracies, 10, 5000, generator, "uniform")
    adversarial = simulate_ensemble_error(accuracies, 10, 5000, generator, "adversarial")
    assert uniform < 0.25 < 0.5 < adversarial


def test_a_tie_is_an_error() -> None:
    generator = torch.Generator().manual_seed(0)
    assert majority_error(torch.tensor([1.0, 0.0])) == 1
    assert simulate_ensemble_error(torch.tensor([1.0, 0.0]), 3, 10, generator) == 1


def test_hoeffding_is_stronger_everywhere() -> None:
    z = torch.linspace(0.5, 1, 101, dtype=torch.float64)
    assert ((2 * z - 1) ** 2 >= 2 * xi(z) - 1e-15).all()


def test_bad_votes_are_named() -> None:
    generator = torch.Generator()
    good = torch.tensor([0.7])
    with pytest.raises(UserError, match=r"needs a mean accuracy above 0\.5"):
        ensemble_error_bound(10, 0.5)
    with pytest.raises(UserError, match="negative"):
        ensemble_error_bound(-1, 0.7)
    for bad in (torch.ones(2, 2), torch.ones(0)):
        with pytest.raises(UserError, match="one per vote"):
            majority_error(bad)
    with pytest.raises(UserError, match=r"outside \[0, 1\]"):
        majority_error(torch.tensor([0.5, math.nan]))
    for num_classes, trials in ((1, 5), (3, 0)):
        with pytest.raises(UserError, match="two classes and one trial"):
            simulate_ensemble_error(good, num_classes, trials, generator)
    with pytest.raises(UserError, match="'uniform' or 'adversarial'"):
        simulate_ensemble_error(good, 3, 5, generator, "random")


def test_marginal_total_variation() -> None:
    first, second = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 1])
    assert marginal_total_variation(first, second, 3) == pytest.approx(0.25)
    assert marginal_total_variation(first, first.flip(0), 3) == 0
    assert marginal_total_variation(torch.zeros(5, dtype=torch.long), torch.full((3,), 2), 3) == 1


@pytest.mark.parametrize("bad", [torch.tensor([0.0]), torch.tensor([[0]]), torch.tensor([], dtype=torch.long)])
def test_marginals_are_of_integers(bad: torch.Tensor) -> None:
    with pytest.raises(UserError, match="expected"):
        marginal_total_variation(torch.tensor([0]), bad, 3)


@pytest.mark.parametrize("bad", [torch.tensor([3]), torch.tensor([-1])])
def test_marginals_are_of_classes(bad: torch.Tensor) -> None:
    with pytest.raises(UserError, match="outside 0 to 2"):
        marginal_total_variation(torch.tensor([0]), bad, 3)
