from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.self_training.naive import softmax
from tllib_ancon.errors import UserError
from tllib_ancon.self_training.gce import generalized_cross_entropy


def naive_loss(logits: list[float], target: list[float], q: float) -> float:
    agreement = sum(p * t for p, t in zip(softmax(logits), target, strict=True))
    return (1 - agreement**q) / q


def rows(size: int, low: float, high: float) -> st.SearchStrategy[list[list[float]]]:
    row = st.lists(st.floats(low, high, width=32), min_size=3, max_size=3)
    return st.lists(row, min_size=size, max_size=size)


@settings(deadline=None)
@given(rows(4, -20, 20), rows(4, 0, 5), st.floats(0.05, 1), st.permutations(range(4)))
def test_against_a_naive_transcription_in_any_order(logits, targets, q, order) -> None:
    expected = [naive_loss(logits[i], targets[i], q) for i in order]
    arguments = torch.tensor(logits)[list(order)], torch.tensor(targets)[list(order)], q
    losses = generalized_cross_entropy(*arguments, reduction="none")
    torch.testing.assert_close(losses, torch.tensor(expected), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(generalized_cross_entropy(*arguments), losses.mean())
    torch.testing.assert_close(generalized_cross_entropy(*arguments, reduction="sum"), losses.sum())


def test_values_recorded_from_the_authors_code(golden: dict[str, np.ndarray]) -> None:
    for step in range(int(golden["steps"])):
        logits = torch.from_numpy(golden["logits"][step]).requires_grad_()
        loss = generalized_cross_entropy(logits, torch.from_numpy(golden["smooth"][step]))
        assert float(loss.detach()) == pytest.approx(float(golden["gce"][step]), rel=1e-5)
        loss.backward()
        torch.testing.assert_close(logits.grad, torch.from_numpy(golden["gce_grad"][step]), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_classes_are_one_hot_weights(dtype: torch.dtype) -> None:
    logits, classes = torch.randn(5, 4), torch.tensor([3, 0, 1, 1, 2])
    weights = torch.nn.functional.one_hot(classes, 4)
    expected = generalized_cross_entropy(logits, weights)
    torch.testing.assert_close(generalized_cross_entropy(logits, classes.to(dtype)), expected)


def test_targets_get_no_gradient() -> None:
    logits, targets = torch.randn(5, 4, requires_grad=True), torch.rand(5, 4, requires_grad=True)
    generalized_cross_entropy(logits, targets).backward()
    assert logits.grad is not None
    assert targets.grad is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    logits, targets = torch.randn(5, 4).to(dtype), torch.rand(5, 4)
    loss = generalized_cross_entropy(logits, targets)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, generalized_cross_entropy(logits.float(), targets))


@pytest.mark.parametrize("q", [0.01, 0.8, 1.0])
def test_an_agreement_that_underflows(q: float) -> None:
    logits = torch.tensor([[0.0, 200.0]], requires_grad=True)
    loss = generalized_cross_entropy(logits, torch.tensor([[1.0, 0.0]]), q)
    assert float(loss.detach()) == pytest.approx((1 - math.exp(-200 * q)) / q, rel=1e-5)
    loss.backward()
    slope = math.exp(-200 * q)
    torch.testing.assert_close(logits.grad, torch.tensor([[-slope, slope]]), rtol=1e-4, atol=1e-30)


def test_a_target_without_mass_has_no_gradient() -> None:
    logits = torch.randn(2, 3, requires_grad=True)
    loss = generalized_cross_entropy(logits, torch.zeros(2, 3), q=0.5)
    loss.backward()
    assert float(loss.detach()) == 2
    assert torch.equal(logits.grad, torch.zeros(2, 3))


@pytest.mark.parametrize(
    ("logits", "targets", "options", "message"),
    [
        (torch.zeros(2, 3), torch.zeros(2, 3), {"q": 0.0}, "`q` must be above 0"),
        (torch.zeros(2, 3), torch.zeros(2, 3), {"q": 1.5}, "`q` must be above 0 .* 1, got 1.5"),
        (torch.zeros(2, 3), torch.zeros(2, 3), {"reduction": "men"}, "did you mean 'mean'"),
        (torch.zeros(2, 3), torch.zeros(2, 4), {}, "targets have shape"),
        (torch.zeros(2, 3), torch.zeros(2), {}, "dtype torch.float32"),
        (torch.zeros(2, 3), torch.tensor([0, 3]), {}, "outside"),
        (torch.zeros(3), torch.zeros(3), {}, "logits have shape"),
    ],
)
def test_bad_input(logits, targets, options, message) -> None:
    with pytest.raises(UserError, match=message):
        generalized_cross_entropy(logits, targets, **options)
