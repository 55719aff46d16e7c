from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.self_training.naive import softmax
from tllib_ancon.errors import UserError
from tllib_ancon.self_training.belief_matching import belief_matching_loss, dirichlet_mean


def digamma(x: float) -> float:
    """By recurrence to a large argument and the asymptotic series."""
    if x < 12:
        return digamma(x + 1) - 1 / x
    return math.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6)


def naive_loss(logits: list[float], target: list[float], coefficient: float, prior: float) -> float:
    alpha = [math.exp(value) for value in logits]
    likelihood = sum(t * (digamma(a) - digamma(sum(alpha))) for t, a in zip(target, alpha, strict=True))
    divergence = math.lgamma(sum(alpha)) - math.lgamma(prior * len(alpha))
    for a in alpha:
        divergence += math.lgamma(prior) - math.lgamma(a) + (a - prior) * (digamma(a) - digamma(sum(alpha)))
    assert divergence > -1e-9
    return coefficient * divergence - likelihood


def rows(low: float, high: float) -> st.SearchStrategy[list[list[float]]]:
    return st.lists(st.lists(st.floats(low, high, width=32), min_size=3, max_size=3), min_size=4, max_size=4)


@settings(deadline=None)
@given(rows(-4, 5), rows(0, 2), st.floats(0, 1), st.floats(0.25, 4), st.permutations(range(4)))
def test_against_a_naive_transcription_in_any_order(logits, targets, coefficient, prior, order) -> None:
    expected = sum(naive_loss(*row, coefficient, prior) for row in zip(logits, targets, strict=True)) / 4
    order = list(order)
    found = belief_matching_loss(torch.tensor(logits)[order], torch.tensor(targets)[order], coefficient, prior)
    assert float(found) == pytest.approx(expected, rel=1e-4, abs=1e-3)


@pytest.mark.parametrize(("coefficient", "prior"), [(1.0, 1.0), (0.1, 2.0)])
def test_smallest_at_the_posterior(coefficient: float, prior: float) -> None:
    """The bound is tight at Dir(β + y / coefficient), so the gradient is 0 there."""
    posterior = torch.full((1, 4), prior)
    posterior[0, 2] += 1 / coefficient
    logits = posterior.log().requires_grad_()
    belief_matching_loss(logits, torch.tensor([2]), coefficient, prior).backward()
    torch.testing.assert_close(logits.grad, torch.zeros(1, 4), rtol=0, atol=1e-5)
    moved = belief_matching_loss(logits.detach() + 0.1, torch.tensor([2]), coefficient, prior)
    assert moved > belief_matching_loss(logits.detach(), torch.tensor([2]), coefficient, prior)


def test_classes_are_one_hot_weights() -> None:
    logits, classes = torch.randn(5, 4), torch.tensor([3, 0, 1, 1, 2])
    weights = torch.nn.functional.one_hot(classes, 4).float()
    assert torch.equal(belief_matching_loss(logits, classes), belief_matching_loss(logits, weights))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    logits, targets = torch.randn(5, 4).to(dtype), torch.tensor([3, 0, 1, 1, 2])
    loss = belief_matching_loss(logits, targets)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, belief_matching_loss(logits.float(), targets))


@pytest.mark.parametrize("size", [30.0, 1e3, 6e4])
def test_finite_for_any_logits(size: float) -> None:
    logits = torch.tensor([[size, -size, 0.0]], requires_grad=True)
    for classes in (0, 1, 2):
        loss = belief_matching_loss(logits, torch.tensor([classes]))
        (gradient,) = torch.autograd.grad(loss, logits)
        assert loss.isfinite()
        assert gradient.isfinite().all()


def test_the_mean_of_the_dirichlet_is_the_softmax() -> None:
    logits = torch.randn(6, 3)
    alpha = logits.exp()
    torch.testing.assert_close(dirichlet_mean(logits), alpha / alpha.sum(1, keepdim=True))
    torch.testing.assert_close(dirichlet_mean(logits), torch.tensor([softmax(row) for row in logits.tolist()]))
    assert dirichlet_mean(logits.half()).dtype == torch.float32


@pytest.mark.parametrize(
    ("targets", "options", "message"),
    [
        (torch.zeros(2, 4), {}, "targets have shape"),
        (torch.tensor([0, 3]), {}, "outside"),
        (torch.tensor([0, 1]), {"coefficient": -1.0}, "coefficient"),
        (torch.tensor([0, 1]), {"prior": 0.0}, "prior"),
    ],
)
def test_bad_input(targets, options, message) -> None:
    with pytest.raises(UserError, match=message):
        belief_matching_loss(torch.zeros(2, 3), targets, **options)
