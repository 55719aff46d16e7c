from __future__ import annotations

import contextlib
import math

import numpy as np
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
    mix_authors,
    mix_normalized,
    random_visits,
)
from tllib_ancon.errors import UserError
from tllib_ancon.self_training import NeighborhoodReciprocity


def clamp(row: list[float]) -> list[float]:
    return [min(max(p, 1e-4), 1 - 1e-4) for p in row]


def divergence(score: list[float], prediction: list[float]) -> float:
    return sum(s * math.log(s) - s * p for s, p in zip(score, prediction, strict=True))


def naive_losses(visits: Visits, neighbors: int, expanded: int, reciprocal: bool, mix, weight: float) -> list[float]:
    memory, values = NaiveMemory(*visits.first), []
    for indices, features, logits, anchors in visits.steps:
        memory.update(indices, features, logits)
        predictions = [clamp(softmax(row)) for row in logits.tolist()]
        total = 0.0
        for index, prediction, votes in zip(indices.tolist(), predictions, anchors.tolist(), strict=True):
            for near in memory.nearest(index, neighbors):
                beyond = memory.nearest(near, expanded)
                affinity = float(beyond.count(index)) if reciprocal and index in beyond else 0.1
                total += affinity * divergence(clamp(mix(votes, memory.scores[near], weight)), prediction)
                for other in beyond:
                    total += 0.1 * divergence(clamp(mix(votes, memory.scores[other], weight)), prediction)
        mean = [sum(row[k] for row in predictions) / len(predictions) for k in range(K)]
        values.append(total / len(predictions) + sum(m * math.log(m + 1e-5) for m in mean))
    return values


def no_mix(votes: list[float], score: list[float], weight: float) -> list[float]:
    return score


@pytest.mark.parametrize("reciprocal", [True, False])
@pytest.mark.parametrize(
    ("mixing", "mix"),
    [(None, no_mix), ("authors", mix_authors), ("normalized", mix_normalized), ("adaptive", mix_adaptive)],
)
def test_against_a_naive_transcription(reciprocal: bool, mixing: str | None, mix) -> None:
    visits = random_visits(seed=3)
    expected = naive_losses(visits, neighbors=4, expanded=3, reciprocal=reciprocal, mix=mix, weight=0.4)
    nrc = NeighborhoodReciprocity(N, K, D, 4, 3, reciprocal=reciprocal, mixing=mixing or "authors", anchor_weight=0.4)
    found = losses(nrc, visits, anchored=mixing is not None)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_reciprocity_and_mixing_make_a_difference() -> None:
    visits = random_visits(seed=3)
    variants = [
        losses(NeighborhoodReciprocity(N, K, D, reciprocal=reciprocal, mixing=mixing), visits)
        for reciprocal in (True, False)
        for mixing in ("authors", "normalized")
    ]
    for i, first in enumerate(variants):
        for second in variants[:i]:
            assert (first - second).abs().max() > 1e-2


@pytest.mark.parametrize("name", ["nrc", "nrc_ancon"])
def test_values_recorded_from_the_authors_code(golden: dict[str, np.ndarray], name: str) -> None:
    num_samples, num_classes, feature_dim = (int(golden[key]) for key in "NKD")
    recorded = {key: torch.from_numpy(value) for key, value in golden.items() if value.ndim}
    nrc = NeighborhoodReciprocity(num_samples, num_classes, feature_dim, reciprocal=False)
    nrc.initialize(torch.arange(num_samples), recorded["features_init"], recorded["logits_init"])
    for step in range(int(golden["steps"])):
        logits = recorded["logits"][step].clone().requires_grad_()
        anchors = recorded["y_bar_before"][step] if name == "nrc_ancon" else None
        loss = nrc(recorded["idx"][step], recorded["features"][step], logits, anchors)
        torch.testing.assert_close(loss.detach(), recorded[name][step], rtol=1e-5, atol=0)
        loss.backward()
        if name == "nrc":
            torch.testing.assert_close(logits.grad, recorded["nrc_grad"][step], rtol=1e-5, atol=1e-7)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**16), st.permutations(range(N)), st.sampled_from(["exact", "cached"]))
def test_invariant_to_the_order_of_storage(seed: int, order: list[int], search: str) -> None:
    visits = random_visits(seed)
    first, second = (NeighborhoodReciprocity(N, K, D, search=search) for _ in range(2))
    torch.testing.assert_close(losses(first, visits), losses(second, visits, torch.tensor(order)))


def test_invariant_to_the_order_within_a_batch() -> None:
    visits = random_visits(seed=1)
    shuffled = Visits(visits.first, [tuple(part.flip(0) for part in step) for step in visits.steps])
    first, second = NeighborhoodReciprocity(N, K, D), NeighborhoodReciprocity(N, K, D)
    torch.testing.assert_close(losses(first, visits), losses(second, shuffled))


@pytest.mark.parametrize("search", ["exact", "cached"])
def test_a_checkpoint_continues_where_it_was(search: str) -> None:
    visits = random_visits(seed=2)
    first, second = (NeighborhoodReciprocity(N, K, D, search=search) for _ in range(2))
    losses(first, visits)
    second.load_state_dict(first.state_dict())
    for indices, features, logits, anchors in visits.steps:
        assert torch.equal(first(indices, features, logits, anchors), second(indices, features, logits, anchors))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    visits = random_visits(seed=4)
    half = [(indices, features.to(dtype), logits.to(dtype), a) for indices, features, logits, a in visits.steps]
    full = [(indices, features.float(), logits.float(), a) for indices, features, logits, a in half]
    first, second = NeighborhoodReciprocity(N, K, D), NeighborhoodReciprocity(N, K, D)
    found = losses(first, Visits(visits.first, half))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, losses(second, Visits(visits.first, full)))


@pytest.mark.parametrize("search", ["exact", "cached"])
def test_autocast_changes_nothing(search: str) -> None:
    visits = random_visits(seed=4)
    expected = losses(NeighborhoodReciprocity(N, K, D, search=search), visits)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = losses(NeighborhoodReciprocity(N, K, D, search=search), visits)
    torch.testing.assert_close(found, expected)


def test_gradient_reaches_the_logits_alone() -> None:
    indices, features, logits, anchors = random_visits(seed=5).steps[0]
    nrc = NeighborhoodReciprocity(N, K, D)
    nrc.initialize(*random_visits(seed=5).first)
    inputs = [t.float().requires_grad_() for t in (features, logits, anchors)]
    nrc(indices, *inputs).backward()
    assert [t.grad is not None for t in inputs] == [False, True, False]
    assert not any(buffer.requires_grad for buffer in nrc.buffers())


@pytest.mark.parametrize("search", ["exact", "cached"])
def test_a_step_never_waits_for_a_device(search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of the meta device have no values, so anything that would read one fails."""
    indices, features, logits, anchors = random_visits(seed=5).steps[0]
    nrc = NeighborhoodReciprocity(N, K, D, search=search)
    losses(nrc, random_visits(seed=5, num_steps=1))
    nrc.to("meta")
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
    meta = [t.to("meta") for t in (indices, features, logits, anchors.float())]
    meta[2].requires_grad_()
    nrc(*meta).backward()


def test_as_many_neighbours_as_there_are() -> None:
    with pytest.warns(UserWarning, match="others") as warned:
        nrc = NeighborhoodReciprocity(3, K, D, neighbors=5, expanded_neighbors=2, search="cached")
    assert len(warned) == 1
    nrc.initialize(torch.arange(3), torch.randn(3, D), torch.randn(3, K))
    assert nrc(torch.tensor([2]), torch.randn(1, D), torch.randn(1, K)).isfinite()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mixing": "normalised"}, "did you mean 'normalized'"),
        ({"search": "fast"}, "cached, exact"),
        ({"anchor_weight": 1.5}, "anchor_weight"),
        ({"neighbors": 0}, "`neighbors` must be at least 1"),
        ({"num_samples": 1}, "at least two samples"),
    ],
)
def test_bad_options(options, message) -> None:
    with pytest.raises(UserError, match=message):
        NeighborhoodReciprocity(**{"num_samples": N, "num_classes": K, "feature_dim": D, **options})


def test_a_step_before_the_first_pass() -> None:
    with pytest.raises(UserError, match="initialize"):
        NeighborhoodReciprocity(N, K, D)(torch.arange(2), torch.randn(2, D), torch.randn(2, K))


@pytest.mark.parametrize(
    ("indices", "features", "logits", "message"),
    [
        (torch.arange(N - 1), (N - 1, D), (N - 1, K), f"{N - 1} of {N} samples"),
        (torch.arange(N) + 1, (N, D), (N, K), "outside"),
        (torch.arange(N).float(), (N, D), (N, K), "dtype"),
        (torch.arange(N), (N, D + 1), (N, K), "features have shape"),
        (torch.arange(N), (N, D), (N, K + 1), "logits have shape"),
        (torch.arange(N + 1), (N, D), (N, K), "indices have shape"),
        (torch.arange(0), (0, D), (0, K), f"0 of {N} samples"),
    ],
)
def test_a_bad_first_pass(indices, features, logits, message) -> None:
    with pytest.raises(UserError, match=message):
        NeighborhoodReciprocity(N, K, D).initialize(indices, torch.randn(features), torch.randn(logits))


@pytest.mark.parametrize(
    ("indices", "features", "logits", "anchors", "message"),
    [
        (torch.tensor([0, N]), (2, D), (2, K), (2, K), "outside"),
        (torch.tensor([0, 1]), (2, D + 1), (2, K), (2, K), "features have shape"),
        (torch.tensor([0, 1]), (2, D), (2, K + 1), (2, K), "logits have shape"),
        (torch.tensor([0, 1]), (2, D), (2, K), (2, K + 1), "anchors have shape"),
    ],
)
def test_a_bad_step(indices, features, logits, anchors, message) -> None:
    nrc = NeighborhoodReciprocity(N, K, D)
    nrc.initialize(*random_visits(seed=0).first)
    with pytest.raises(UserError, match=message):
        nrc(indices, torch.randn(features), torch.randn(logits), torch.rand(anchors))
