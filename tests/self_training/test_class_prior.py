from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tllib_ancon.errors import UserError
from tllib_ancon.self_training.class_prior import estimate_class_prior, likeliest_class_prior


def naive_prior(probabilities: list[list[float]], source: list[float], steps: int) -> list[float]:
    """Eq. 9 of Saerens et al. (2002), one sample at a time."""
    num_classes = len(source)
    prior = [1 / num_classes] * num_classes
    for _ in range(steps):
        total = [0.0] * num_classes
        for row in probabilities:
            weighted = [prior[k] / source[k] * row[k] for k in range(num_classes)]
            for k in range(num_classes):
                total[k] += weighted[k] / sum(weighted)
        prior = [value / len(probabilities) for value in total]
    return prior


def sampled(prior: list[float], samples: int, seed: int) -> torch.Tensor:
    """Calibrated predictions, for equal classes, on a sample whose classes have this prior: each class is a Gaussian on
    a line."""
    generator = np.random.default_rng(seed)
    labels = generator.choice(len(prior), size=samples, p=prior)
    points = 2.0 * labels + generator.normal(size=samples)
    logits = -0.5 * (points[:, None] - 2.0 * np.arange(len(prior))) ** 2
    return torch.from_numpy(logits).softmax(1)


@pytest.mark.parametrize("source", [None, [0.5, 0.2, 0.2, 0.1]])
def test_against_a_naive_transcription(source: list[float] | None) -> None:
    probabilities = sampled([0.1, 0.6, 0.05, 0.25], 50, seed=0)
    given = None if source is None else torch.tensor(source)
    found = likeliest_class_prior(probabilities, given, steps=7)
    expected = naive_prior(probabilities.tolist(), source or [0.25] * 4, steps=7)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_by_hand() -> None:
    """Two samples are certain of class 0, one says 1/2: ρ_0 = (2 + ρ_0) / 3 has the solution 1."""
    probabilities = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]])
    one_step = likeliest_class_prior(probabilities, steps=1)
    torch.testing.assert_close(one_step, torch.tensor([5 / 6, 1 / 6]))
    torch.testing.assert_close(likeliest_class_prior(probabilities), torch.tensor([1.0, 0.0]))


def test_counts_are_drawn_towards_equal_classes_the_more_the_likeliest_prior_contradicts_them() -> None:
    """Three samples of four are counted for class 0: the distance to equal classes is 1/4."""
    probabilities = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.4, 0.6]])
    for source in (None, torch.tensor([0.2, 0.8]), torch.tensor([0.001, 0.999])):
        likeliest = likeliest_class_prior(probabilities, source)
        share = min(1.0, abs(0.75 - float(likeliest[0])) / 0.25)
        expected = (1 - share) * torch.tensor([0.75, 0.25]) + share / 2
        torch.testing.assert_close(estimate_class_prior(probabilities, source), expected)
    half = estimate_class_prior(probabilities, shrinkage=0.5)
    torch.testing.assert_close(half, torch.tensor([0.625, 0.375]))


def test_equal_counts_are_equal_classes() -> None:
    torch.testing.assert_close(estimate_class_prior(torch.eye(3)), torch.full((3,), 1 / 3))


@given(
    counts=st.lists(st.integers(0, 9), min_size=2, max_size=6).filter(any),
    seed=st.integers(0, 99),
    sure=st.floats(0, 9),
)
def test_the_estimate_lies_between_the_counts_and_equal_classes(counts: list[int], seed: int, sure: float) -> None:
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    noise = torch.randn(len(labels), len(counts), generator=torch.Generator().manual_seed(seed))
    probabilities = (noise + sure * torch.eye(len(counts))[labels]).softmax(1)
    found = estimate_class_prior(probabilities)
    counted = torch.bincount(probabilities.argmax(1), minlength=len(counts)) / len(labels)
    between = (found - 1 / len(counts)) * (counted - found)
    assert (between > -1e-6).all()
    assert float(found.sum()) == pytest.approx(1, abs=1e-5)


def test_certain_predictions_are_counted() -> None:
    certain = torch.eye(4)[torch.tensor([0, 0, 0, 1, 1, 2])]
    torch.testing.assert_close(estimate_class_prior(certain), torch.tensor([3, 2, 1, 0]) / 6)


@pytest.mark.parametrize("prior", [[0.2] * 5, [0.5, 0.3, 0.1, 0.06, 0.04], [0.5, 0.0, 0.5, 0.0, 0.0]])
def test_under_label_shift_it_finds_the_prior(prior: list[float]) -> None:
    probabilities = sampled(prior, 20_000, seed=1)
    found = likeliest_class_prior(probabilities, steps=1000)
    assert float((found - torch.tensor(prior)).abs().sum()) < 0.05


def test_order_of_samples_and_classes_does_not_matter() -> None:
    probabilities = sampled([0.1, 0.6, 0.05, 0.25], 80, seed=2)
    found = estimate_class_prior(probabilities)
    generator = torch.Generator().manual_seed(0)
    samples, classes = torch.randperm(80, generator=generator), torch.randperm(4, generator=generator)
    torch.testing.assert_close(estimate_class_prior(probabilities[samples][:, classes]), found[classes])


def test_full_shrinkage_is_equal_classes_and_the_sum_is_always_one() -> None:
    probabilities = torch.tensor([[1.0, 0.0, 0.0]] * 4)
    torch.testing.assert_close(estimate_class_prior(probabilities, shrinkage=1.0), torch.full((3,), 1 / 3))
    for dtype in (torch.float16, torch.float32, torch.float64):
        found = estimate_class_prior(probabilities.to(dtype))
        assert (found.dtype, float(found.sum())) == (torch.float32, pytest.approx(1))


@pytest.mark.parametrize(
    ("probabilities", "options", "message"),
    [
        (torch.zeros(0, 3), {}, "shape"),
        (torch.zeros(3), {}, "shape"),
        ([[0.5, 0.5]], {}, "probabilities are a list"),
        (torch.tensor([[torch.nan, 1.0]]), {}, "finite"),
        (torch.tensor([[-0.1, 1.1]]), {}, "at least 0"),
        (torch.tensor([[0.0, 0.0]]), {}, "positive sum"),
        (torch.tensor([[0.5, 0.5]]), {"shrinkage": 1.5}, "shrinkage"),
        (torch.tensor([[0.5, 0.5]]), {"source_prior": torch.tensor([1.0, 0.0])}, "source_prior"),
        (torch.tensor([[0.5, 0.5]]), {"source_prior": torch.tensor([1.0])}, "source_prior must be 2 numbers"),
    ],
)
def test_bad_input(probabilities, options, message: str) -> None:
    with pytest.raises(UserError, match=message):
        estimate_class_prior(probabilities, **options)
