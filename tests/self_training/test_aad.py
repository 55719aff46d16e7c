from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.self_training.naive import softmax
from tests.self_training.neighborhoods import (
    D,
    K,
    N,
    NaiveMemory,
    Visits,
    losses,
    mix_adaptive,
    mix_normalized,
    random_visits,
)
from tllib_ancon.errors import UserError
from tllib_ancon.self_training import AttractingDispersing


def dot(first: list[float], second: list[float]) -> float:
    return sum(a * b for a, b in zip(first, second, strict=True))


def naive_losses(
    visits: Visits, neighbors: int, beta: float, total_steps: int, weight: float, mix=mix_normalized
) -> list[float]:
    memory, values = NaiveMemory(*visits.first), []
    for step, (indices, features, logits, anchors) in enumerate(visits.steps):
        memory.update(indices, features, logits)
        predictions = [softmax(row) for row in logits.tolist()]
        alpha = (1 + 10 * min(step / total_steps, 1)) ** -beta
        total = 0.0
        for i, (index, votes) in enumerate(zip(indices.tolist(), anchors.tolist(), strict=True)):
            for near in memory.nearest(index, neighbors):
                total -= dot(predictions[i], mix(votes, memory.scores[near], weight))
            total += alpha * sum(dot(predictions[i], other) for j, other in enumerate(predictions) if j != i)
        values.append(total / len(predictions))
    return values


@pytest.mark.parametrize(("beta", "total_steps", "weight"), [(5.0, 8, 0.3), (0.75, 3, 0.6), (0.0, None, 0.3)])
def test_against_a_naive_transcription(beta: float, total_steps: int | None, weight: float) -> None:
    visits = random_visits(seed=6)
    expected = naive_losses(visits, 4, beta, total_steps or 1, weight)
    aad = AttractingDispersing(N, K, D, neighbors=4, beta=beta, total_steps=total_steps, anchor_weight=weight)
    torch.testing.assert_close(losses(aad, visits), torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_votes_and_predictions_that_count_alike_against_a_naive_transcription() -> None:
    visits = random_visits(seed=7)
    expected = naive_losses(visits, 4, 0.0, 1, 0.3, mix_adaptive)
    aad = AttractingDispersing(N, K, D, neighbors=4, mixing="adaptive")
    torch.testing.assert_close(losses(aad, visits), torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_without_anchors_is_with_no_vote() -> None:
    visits = random_visits(seed=6)
    voteless = Visits(visits.first, [(i, f, y, torch.zeros_like(a)) for i, f, y, a in visits.steps])
    first, second = (AttractingDispersing(N, K, D, total_steps=9) for _ in range(2))
    assert torch.equal(losses(first, visits, anchored=False), losses(second, voteless))


def test_dispersion_falls_from_one_and_stays_at_its_last_value() -> None:
    aad, visits = AttractingDispersing(N, K, D, beta=2.0, total_steps=4), random_visits(seed=0, num_steps=6)
    aad.initialize(*visits.first)
    values = []
    for indices, features, logits, _ in visits.steps:
        values.append(float(aad.dispersion))
        aad(indices, features, logits)
    assert values == pytest.approx([1, 3.5**-2, 6**-2, 8.5**-2, 11**-2, 11**-2])


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**16), st.permutations(range(N)))
def test_invariant_to_the_order_of_storage(seed: int, order: list[int]) -> None:
    visits = random_visits(seed)
    first, second = (AttractingDispersing(N, K, D, total_steps=9) for _ in range(2))
    torch.testing.assert_close(losses(first, visits), losses(second, visits, torch.tensor(order)))


def test_a_checkpoint_continues_where_it_was() -> None:
    visits = random_visits(seed=2)
    first, second = (AttractingDispersing(N, K, D, beta=5.0, total_steps=20) for _ in range(2))
    losses(first, visits)
    second.load_state_dict(first.state_dict())
    for indices, features, logits, anchors in visits.steps:
        assert torch.equal(first(indices, features, logits, anchors), second(indices, features, logits, anchors))
    assert float(second.dispersion) == pytest.approx((1 + 10 * 10 / 20) ** -5)


def test_gradient_against_finite_differences() -> None:
    visits = random_visits(seed=3, num_steps=1)
    indices, features, logits, anchors = visits.steps[0]

    def loss(values: torch.Tensor) -> torch.Tensor:
        aad = AttractingDispersing(N, K, D, beta=0.0)
        aad.initialize(*visits.first)
        aad(indices, features, logits)  # fixes the memory, in which the numbers below must not stand
        aad.memory.update = lambda *_: None
        return aad(indices, features, values, anchors)

    logits.requires_grad_()
    loss(logits).backward()
    for i, k in [(0, 0), (3, 2), (11, 3)]:
        step = torch.zeros_like(logits.detach())
        step[i, k] = 1e-2
        slope = float(loss(logits.detach() + step) - loss(logits.detach() - step)) / 2e-2
        assert float(logits.grad[i, k]) == pytest.approx(slope, abs=2e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    visits = random_visits(seed=4)
    half = [(indices, features.to(dtype), logits.to(dtype), a) for indices, features, logits, a in visits.steps]
    full = [(indices, features.float(), logits.float(), a) for indices, features, logits, a in half]
    first, second = (AttractingDispersing(N, K, D, total_steps=9) for _ in range(2))
    torch.testing.assert_close(losses(first, Visits(visits.first, half)), losses(second, Visits(visits.first, full)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": -1.0}, "beta"),
        ({"total_steps": None}, "total_steps"),
        ({"total_steps": 0}, "total_steps"),
        ({"anchor_weight": -0.1}, "anchor_weight"),
        ({"neighbors": 0}, "neighbors"),
        ({"mixing": "authors "}, "did you mean 'authors'"),
    ],
)
def test_bad_options(options, message) -> None:
    with pytest.raises(UserError, match=message):
        AttractingDispersing(N, K, D, **{"beta": 1.0, "total_steps": 9, **options})


def test_bad_input() -> None:
    aad, batch = AttractingDispersing(N, K, D, total_steps=9), torch.arange(2)
    with pytest.raises(UserError, match="initialize"):
        aad(batch, torch.randn(2, D), torch.randn(2, K))
    aad.initialize(*random_visits(seed=0).first)
    with pytest.raises(UserError, match="features have shape"):
        aad(batch, torch.randn(2, D + 1), torch.randn(2, K))
    with pytest.raises(UserError, match="anchors have shape"):
        aad(batch, torch.randn(2, D), torch.randn(2, K), torch.zeros(2, K + 1))
    with pytest.raises(UserError, match="outside"):
        aad(batch + N, torch.randn(2, D), torch.randn(2, K))
