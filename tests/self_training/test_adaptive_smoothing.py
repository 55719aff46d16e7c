from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.self_training.naive import softmax
from tllib_ancon import methods
from tllib_ancon.errors import UserError
from tllib_ancon.self_training.adaptive_smoothing import AdaptiveSmoothing
from tllib_ancon.self_training.class_prior import estimate_class_prior

SAMPLES, CLASSES = 6, 3


class Naive:
    """The docstring's equations with lists, for the convention that reads before it adds."""

    def __init__(self, beta: float, prior: list[float] | None = None):
        self.beta = beta
        self.prior = prior or [1 / CLASSES] * CLASSES
        self.threshold: float | None = None
        self.votes = [[0.0] * CLASSES for _ in range(SAMPLES)]
        self.shares = list(self.prior)

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
            [t * p / share if t else 0.0 for t, p, share in zip(target, self.prior, self.shares, strict=True)]
            for target in targets
        ]
        return [[value * min(sum(row), 3.0) / (sum(row) or 1) for value in row] for row in weighted]


def visit(draw: int) -> tuple[list[int], list[list[float]]]:
    generator = torch.Generator().manual_seed(draw)
    indices = torch.randperm(SAMPLES, generator=generator)[:4].tolist()
    return indices, (3 * torch.randn(4, CLASSES, generator=generator)).tolist()


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.integers(0, 10_000), min_size=1, max_size=8),
    st.sampled_from([0.0, 0.5, 0.9]),
    st.sampled_from([None, [0.7, 0.2, 0.1], [0.5, 0.5, 0.0]]),
)
def test_against_a_naive_transcription(draws: list[int], beta: float, prior: list[float] | None) -> None:
    adaptive = AdaptiveSmoothing(SAMPLES, CLASSES, beta=beta, class_prior=prior or "uniform")
    naive = Naive(beta, prior)
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


def test_counts_are_a_prior_too() -> None:
    shares, counts = (
        AdaptiveSmoothing(SAMPLES, CLASSES, class_prior=prior) for prior in ([0.1, 0.3, 0.6], (5, 15, 30))
    )
    torch.testing.assert_close(shares.prior, torch.tensor([0.1, 0.3, 0.6]))
    torch.testing.assert_close(counts.shares, shares.shares)


def test_the_estimate_comes_from_the_start_pass_and_is_part_of_the_state() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(SAMPLES, CLASSES, generator=generator) + torch.tensor([2.0, 0.0, 0.0])
    sizes = {"num_samples": SAMPLES, "num_classes": CLASSES}
    method, twin = (methods.create("ancon-auto", **sizes) for _ in range(2))
    indices, features = torch.arange(SAMPLES), torch.randn(SAMPLES, 2)
    assert (method.needs_pass(0), method.needs_pass(1)) == (True, False)
    assert not methods.create("ancon-auto", **sizes, class_prior="uniform").needs_pass(0)
    with pytest.raises(UserError, match="has not been estimated yet"):
        method(indices, logits, features)
    method.initialize(0, indices, features, logits)
    torch.testing.assert_close(method.refiner.module.prior, estimate_class_prior(logits.softmax(1)))
    twin.load_state_dict(method.state_dict())
    assert torch.equal(twin(indices, logits, features), method(indices, logits, features))


def test_a_known_prior_leaves_a_common_class_its_weight() -> None:
    """Nine of ten samples are of class 0, in truth and in every prediction."""
    logits = torch.tensor([[4.0, 0.0]]).repeat(10, 1)
    logits[0] = torch.tensor([0.0, 4.0])
    equal, known = (AdaptiveSmoothing(10, 2, class_prior=prior) for prior in ("uniform", [0.9, 0.1]))
    for _ in range(50):
        targets = [module(torch.arange(10), logits) for module in (equal, known)]
    torch.testing.assert_close(targets[1], torch.eye(2)[logits.argmax(1)], rtol=1e-3, atol=1e-3)
    assert float(targets[0][1, 0]) < 0.6


def test_a_prior_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prior.txt"
    file.write_text("10, 30\n60\n")
    resolved = methods.resolve("gce+ancon-auto", {"class_prior": str(file)})
    assert resolved["class_prior"] == (10.0, 30.0, 60.0)
    assert methods.resolve("gce+ancon-auto", resolved) == resolved
    method = methods.create("gce+ancon-auto", num_samples=4, num_classes=3, **resolved)
    torch.testing.assert_close(method.refiner.module.prior, torch.tensor([0.1, 0.3, 0.6]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        ("", "a number of at least 0 for each class"),
        ("0.5 half", "could not convert string to float: 'half'"),
        ("0.5 -0.5", "a number of at least 0"),
        ("nan 1", "a number of at least 0"),
        ("1 2", "must be 3 numbers of at least 0"),
        ("0 0 0", "one a class, not all of them 0"),
    ],
)
def test_bad_files(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "prior.txt"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UserError, match=f"`class_prior`.* {message}"):
        methods.create("ancon-auto", num_samples=4, num_classes=3, class_prior=str(file))


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
        (
            "ancon-auto",
            {"class_prior": "uniform", "prior_shrinkage": 0.1},
            "`prior_shrinkage=0.1` has no effect without `class_prior=estimate`",
        ),
        ("ancon-auto", {"class_prior": "estimat"}, "must be uniform, estimate or a file of numbers, got 'estimat'"),
        ("ancon-auto", {"class_prior": (0.5, -0.5)}, "`class_prior` must be at least 0"),
        ("nrc+ancon-auto", {"class_prior": "estimate"}, "`class_prior` is an option of ancon-auto, not of"),
        ("nrc+ancon-auto", {"smoothing": 0.3}, "not of nrc\\+ancon-auto"),
        ("nrc+ancon-auto", {"mixing": "authors"}, "`mixing` is an option of nrc\\+ancon, not of"),
        ("nrc+ancon", {"schedule": "half"}, "`schedule` is an option of ancon, not of nrc\\+ancon"),
        ("aad+ancon", {"schedule": "half"}, "`schedule` is an option of ancon, not of aad\\+ancon"),
    ],
)
def test_what_is_refused(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        methods.create(name, num_samples=9, num_classes=2, feature_dim=3, total_steps=3, **options)
