from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.self_training.naive import softmax
from tllib_ancon import methods
from tllib_ancon.errors import UserError
from tllib_ancon.self_training.adaptive_smoothing import AdaptiveSmoothing

SAMPLES, CLASSES = 6, 3


class Naive:
    """The docstring's equations with lists, for the convention that reads before it adds."""

    def __init__(self, beta: float):
        self.beta = beta
        self.threshold: float | None = None
        self.votes = [[0.0] * CLASSES for _ in range(SAMPLES)]
        self.shares = [1 / CLASSES] * CLASSES

    def __call__(self, indices: list[int], logits: list[list[float]]) -> list[list[float]]:
        predictions = [row.index(max(row)) for row in logits]
        targets = []
        for index, label in zip(indices, predictions, strict=True):
            counted = [count + (k == label) for k, count in enumerate(self.votes[index])]
            targets.append([value / sum(counted) for value in counted])
        confidences = [max(softmax(row)) for row in logits]
        mean = sum(confidences) / len(confidences)
        self.threshold = mean if self.threshold is None else self.beta * self.threshold + (1 - self.beta) * mean
        for index, label, confidence in zip(indices, predictions, confidences, strict=True):
            if confidence >= self.threshold - 1e-9:
                self.votes[index][label] += 1
        for k in range(CLASSES):
            mean_target = sum(target[k] for target in targets) / len(targets)
            self.shares[k] = self.beta * self.shares[k] + (1 - self.beta) * mean_target
        weighted = [
            [t / (CLASSES * share) if t else 0.0 for t, share in zip(target, self.shares, strict=True)]
            for target in targets
        ]
        return [[value * min(sum(row), 3.0) / sum(row) for value in row] for row in weighted]


def visit(draw: int) -> tuple[list[int], list[list[float]]]:
    generator = torch.Generator().manual_seed(draw)
    indices = torch.randperm(SAMPLES, generator=generator)[:4].tolist()
    return indices, (3 * torch.randn(4, CLASSES, generator=generator)).tolist()


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=8), st.sampled_from([0.0, 0.5, 0.9]))
def test_against_a_naive_transcription(draws: list[int], beta: float) -> None:
    adaptive, naive = AdaptiveSmoothing(SAMPLES, CLASSES, beta=beta), Naive(beta)
    for draw in draws:
        indices, logits = visit(draw)
        targets = adaptive(torch.tensor(indices), torch.tensor(logits))
        torch.testing.assert_close(targets, torch.tensor(naive(indices, logits)), rtol=1e-4, atol=1e-5)


def test_a_class_that_takes_over_loses_its_weight_and_a_rare_one_is_bounded() -> None:
    adaptive = AdaptiveSmoothing(SAMPLES, CLASSES, beta=0.5)
    indices = torch.arange(SAMPLES)
    logits = torch.tensor([[5.0, 0.0, 0.0]]).repeat(SAMPLES, 1)
    masses = [float(adaptive(indices, logits).sum(1).mean()) for _ in range(20)]
    assert masses == sorted(masses, reverse=True)
    assert masses[-1] == pytest.approx(1 / CLASSES, rel=1e-3)
    logits[0] = torch.tensor([0.0, 0.0, 9.0])
    new = AdaptiveSmoothing(SAMPLES, CLASSES, beta=0.5)
    new.shares.copy_(torch.tensor([1.0, 0.0, 0.0]))
    targets = new(indices, logits)
    assert float(targets[0].sum()) == pytest.approx(3.0)
    assert targets.isfinite().all()


def test_votes_outweigh_a_prediction_that_contradicts_them() -> None:
    adaptive = AdaptiveSmoothing(1, 2, beta=0.0, weighting="uniform")
    index = torch.tensor([0])
    for _ in range(3):
        adaptive(index, torch.tensor([[2.0, 0.0]]))
    adaptive.shares.fill_(0.5)
    adaptive.beta = 1.0
    torch.testing.assert_close(adaptive(index, torch.tensor([[0.0, 2.0]])), torch.tensor([[0.75, 0.25]]))


@pytest.mark.parametrize("name", ["ancon-auto", "gce+ancon-auto", "shot+ancon-auto"])
def test_the_registry_offers_it(name: str) -> None:
    method = methods.create(name, num_samples=4, num_classes=2, feature_dim=3)
    assert isinstance(method.refiner.module, AdaptiveSmoothing)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ancon", {"smoothing": "adaptive"}, "ancon-auto"),
        ("nrc+ancon", {"smoothing": "adaptive"}, "ancon-auto"),
        ("ancon", {"smoothing": "0.3"}, "`smoothing` must be a number"),
        ("ancon-auto", {"smoothing": 0.3}, "`smoothing` is an option of ancon, not of ancon-auto"),
        ("ancon-auto", {"schedule": "half"}, "`schedule` is an option of ancon, not of ancon-auto"),
        ("ancon-auto", {"convention": "paper"}, "`convention` is an option of ancon, not of ancon-auto"),
        ("gce+ancon-auto", {"normalize": True}, "`normalize` is an option of ancon, not of gce\\+ancon-auto"),
        ("nrc+ancon-auto", {"smoothing": 0.3}, "not of nrc\\+ancon-auto"),
        ("nrc+ancon-auto", {"mixing": "authors"}, "`mixing` is an option of nrc\\+ancon, not of"),
        ("nrc+ancon", {"schedule": "half"}, "`schedule` is an option of ancon, not of nrc\\+ancon"),
        ("aad+ancon", {"schedule": "half"}, "`schedule` is an option of ancon, not of aad\\+ancon"),
    ],
)
def test_what_is_refused(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        methods.create(name, num_samples=9, num_classes=2, feature_dim=3, total_steps=3, **options)
