from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.self_training.naive import argmax, softmax
from tllib_ancon.errors import UserError
from tllib_ancon.self_training import CentroidPseudoLabels, information_maximization, shot

N, K, D = 60, 5, 6


def entropy(row: list[float], epsilon: float) -> float:
    return -sum(p * math.log(p + epsilon) for p in row)


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(-20, 20, width=32), min_size=3, max_size=3), min_size=1, max_size=6))
def test_information_maximization_against_a_naive_transcription(logits: list[list[float]]) -> None:
    predictions = [softmax(row) for row in logits]
    mean = [sum(row[k] for row in predictions) / len(logits) for k in range(3)]
    expected = sum(entropy(row, 1e-5) for row in predictions) / len(logits) - entropy(mean, 1e-5)
    found = information_maximization(torch.tensor(logits))
    assert float(found) == pytest.approx(expected, abs=1e-5)
    assert -math.log(3) - 1e-4 <= float(found) <= 1e-4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_information_maximization_of_half_precision(dtype: torch.dtype) -> None:
    logits = torch.randn(6, 4).to(dtype)
    loss = information_maximization(logits)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, information_maximization(logits.float()))


def test_information_maximization_of_bad_logits() -> None:
    with pytest.raises(UserError, match="logits have shape"):
        information_maximization(torch.zeros(3))


def naive_labels(features: list[list[float]], logits: list[list[float]]) -> list[int]:
    def unit(row: list[float]) -> list[float]:
        length = math.sqrt(sum(x * x for x in row))
        return [x / length for x in row]

    rows = [unit([*feature, 1.0]) for feature in features]
    affinities = [softmax(row) for row in logits]
    labels = [argmax(row) for row in logits]
    for _ in range(2):
        centroids = {}
        for k in sorted(set(labels)):
            mass = sum(a[k] for a in affinities)
            centroids[k] = [
                sum(a[k] * row[d] for a, row in zip(affinities, rows, strict=True)) / mass for d in range(len(rows[0]))
            ]
        labels = [
            max(centroids, key=lambda k: sum(a * b for a, b in zip(row, unit(centroids[k]), strict=True)))
            for row in rows
        ]
        affinities = [[float(k == label) for k in range(len(logits[0]))] for label in labels]
    return labels


def random_pass(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Clusters whose logits are often wrong, and never largest for the last class."""
    generator = torch.Generator().manual_seed(seed)
    clusters = torch.randint(K - 1, (N,), generator=generator)
    features = 2 * torch.randn(K, D, generator=generator)[clusters] + torch.randn(N, D, generator=generator)
    logits = torch.nn.functional.one_hot(clusters, K) + torch.randn(N, K, generator=generator)
    logits[:, -1] = logits.amin(1) - 1
    return torch.arange(N), features, logits


@pytest.mark.parametrize("rows_at_a_time", [7, 8192])
@pytest.mark.parametrize("seed", range(8))
def test_labels_against_a_naive_transcription(seed: int, rows_at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shot, "SAMPLES_AT_A_TIME", rows_at_a_time)
    indices, features, logits = random_pass(seed)
    expected = naive_labels(features.tolist(), logits.tolist())
    labels = CentroidPseudoLabels(N, K, D)
    labels.initialize(indices, features, logits)
    assert labels(indices).tolist() == expected
    assert K - 1 not in expected
    assert expected != logits.argmax(1).tolist()


def test_a_class_lost_in_the_first_round_stays_out() -> None:
    """Class 1 is predicted once, but most of its mass, and so its centroid, lies among class 2."""
    features = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.9, 0.0], [-1.0, 0.0], [-1.0, 0.1], [-1.0, -0.1]])
    logits = torch.tensor([[5.0, 0, 0], [5, 0, 0], [1.0, 1.1, 1.0], *[[0.0, 2.0, 2.1]] * 3])
    labels = CentroidPseudoLabels(6, 3, 2)
    labels.initialize(torch.arange(6), features, logits)
    assert labels(torch.arange(6)).tolist() == [0, 0, 0, 2, 2, 2]
    assert naive_labels(features.tolist(), logits.tolist()) == [0, 0, 0, 2, 2, 2]


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**16), st.permutations(range(N)))
def test_invariant_to_the_order_of_storage(seed: int, order: list[int]) -> None:
    indices, features, logits = random_pass(seed)
    stored_at = torch.tensor(order)
    first, second = CentroidPseudoLabels(N, K, D), CentroidPseudoLabels(N, K, D)
    first.initialize(indices, features, logits)
    second.initialize(stored_at.sort().values, features[stored_at.argsort()], logits[stored_at.argsort()])
    assert torch.equal(first(indices), second(stored_at))


def test_labels_of_a_batch_are_renewed_by_each_pass() -> None:
    labels, batch = CentroidPseudoLabels(N, K, D), torch.tensor([5, 0, 5])
    for seed in (1, 2):
        indices, features, logits = random_pass(seed)
        labels.initialize(indices.flip(0), features.flip(0).half(), logits.flip(0).bfloat16())
        expected = naive_labels(features.half().tolist(), logits.bfloat16().tolist())
        found = labels(batch)
        assert found.dtype == torch.int64
        assert found.tolist() == [expected[5], expected[0], expected[5]]


def test_autocast_changes_nothing() -> None:
    first, second = CentroidPseudoLabels(N, K, D), CentroidPseudoLabels(N, K, D)
    first.initialize(*random_pass(3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        second.initialize(*random_pass(3))
    assert torch.equal(first.labels, second.labels)


def test_a_checkpoint_keeps_the_labels() -> None:
    first, second = CentroidPseudoLabels(N, K, D), CentroidPseudoLabels(N, K, D)
    first.initialize(*random_pass(0))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(torch.arange(N)), second(torch.arange(N)))


def test_a_batch_on_a_device_is_not_waited_for() -> None:
    labels = CentroidPseudoLabels(N, K, D)
    labels.initialize(*random_pass(0))
    labels(torch.arange(3))
    assert labels.to("meta")(torch.empty(3, dtype=torch.int64, device="meta")).shape == (3,)


def test_bad_input() -> None:
    labels = CentroidPseudoLabels(N, K, D)
    with pytest.raises(UserError, match="initialize"):
        labels(torch.arange(3))
    with pytest.raises(UserError, match=f"59 of {N} samples"):
        labels.initialize(*(part[1:] for part in random_pass(0)))
    labels.initialize(*random_pass(0))
    with pytest.raises(UserError, match="outside"):
        labels(torch.tensor([N]))
    with pytest.raises(UserError, match="dtype"):
        labels(torch.tensor([1.0]))
