from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import REFUSED
from tests.self_training.naive import NaiveAnCon
from tllib_ancon import methods
from tllib_ancon.errors import UserError
from tllib_ancon.self_training import AdaptiveSmoothing, estimate_class_prior, likeliest_class_prior

SAMPLES, CLASSES = 6, 3
SIZES = {"num_samples": SAMPLES, "num_classes": CLASSES, "feature_dim": 2, "total_steps": 3}


class Naive(NaiveAnCon):
    """The docstring's equations with lists, for the convention that reads before it adds."""

    def __init__(self, beta: float, prior: list[float] | None = None):
        super().__init__(CLASSES, 0.0, beta, "authors")
        self.prior = prior or [1 / CLASSES] * CLASSES
        self.shares = list(self.prior)

    def __call__(self, indices: list[int], logits: list[list[float]]) -> list[list[float]]:
        votes = [self.ensemble(index) for index in indices]
        predictions = self.visit(indices, logits)  # one-hot, without smoothing
        targets = [
            [(v + p) / (1 + sum(counted)) for v, p in zip(counted, prediction, strict=True)]
            for counted, prediction in zip(votes, predictions, strict=True)
        ]
        for k in range(CLASSES):
            mean_target = sum(target[k] for target in targets) / len(targets)
            self.shares[k] = self.beta * self.shares[k] + (1 - self.beta) * mean_target
        weighted = [
            [t * p / share if t else 0.0 for t, p, share in zip(target, self.prior, self.shares, strict=True)]
            for target in targets
        ]
        return [[value * min(sum(row), 3.0) / (sum(row) or 1) for value in row] for row in weighted]


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
        generator = torch.Generator().manual_seed(draw)
        indices = torch.randperm(SAMPLES, generator=generator)[:4]
        logits = 3 * torch.randn(4, CLASSES, generator=generator)
        expected = torch.tensor(naive(indices.tolist(), logits.tolist()))
        torch.testing.assert_close(adaptive(indices, logits), expected, rtol=1e-4, atol=1e-5)


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


def test_the_estimate_comes_from_the_first_pass_and_is_part_of_the_state() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(SAMPLES, CLASSES, generator=generator) + torch.tensor([2.0, 0.0, 0.0])
    method, twin = (methods.create("ancon-auto", **SIZES) for _ in range(2))
    indices, features = torch.arange(SAMPLES), torch.randn(SAMPLES, 2)
    with pytest.raises(UserError, match="call initialize"):
        method(indices, logits, features)
    assert [method.needs_pass(epoch) for epoch in (0, 1)] == [True, False]
    method.initialize(0, indices, features, logits)
    torch.testing.assert_close(method.refiner.module.prior, estimate_class_prior(logits.softmax(1)))
    twin.load_state_dict(method.state_dict())
    assert torch.equal(twin(indices, logits, features), method(indices, logits, features))
    with pytest.raises(UserError, match="logits have shape"):
        method.initialize(0, indices, features, torch.randn(SAMPLES, CLASSES + 1))


def test_a_prior_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prior.txt"
    file.write_text("10, 30\n60\n")
    resolved = methods.resolve("gce+ancon-auto", {"class_prior": str(file)})
    assert resolved["class_prior"] == (10.0, 30.0, 60.0)
    assert methods.resolve("gce+ancon-auto", resolved) == resolved
    method = methods.create("gce+ancon-auto", num_samples=4, num_classes=3, **resolved)
    torch.testing.assert_close(method.refiner.module.prior, torch.tensor([0.1, 0.3, 0.6]))


@pytest.mark.parametrize(("content", "message"), REFUSED["priors"])
def test_bad_files(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "prior.txt"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UserError, match=message):
        methods.create("ancon-auto", num_samples=4, num_classes=3, class_prior=str(file))


# The estimate of the prior


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
def test_the_likeliest_prior_against_a_naive_transcription(source: list[float] | None) -> None:
    probabilities = sampled([0.1, 0.6, 0.05, 0.25], 50, seed=0)
    given = None if source is None else torch.tensor(source)
    found = likeliest_class_prior(probabilities, given, steps=7)
    expected = naive_prior(probabilities.tolist(), source or [0.25] * 4, steps=7)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("prior", [[0.2] * 5, [0.5, 0.3, 0.1, 0.06, 0.04], [0.5, 0.0, 0.5, 0.0, 0.0]])
def test_under_label_shift_the_likeliest_is_the_prior(prior: list[float]) -> None:
    found = likeliest_class_prior(sampled(prior, 20_000, seed=1), steps=1000)
    assert float((found - torch.tensor(prior)).abs().sum()) < 0.05


def test_counts_are_drawn_towards_equal_classes_the_more_the_likeliest_prior_contradicts_them() -> None:
    """Three samples of four are counted for class 0: the distance to equal classes is 1/4."""
    probabilities = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.4, 0.6]])
    for source in (None, torch.tensor([0.2, 0.8]), torch.tensor([0.001, 0.999])):
        likeliest = likeliest_class_prior(probabilities, source)
        share = min(1.0, abs(0.75 - float(likeliest[0])) / 0.25)
        expected = (1 - share) * torch.tensor([0.75, 0.25]) + share / 2
        torch.testing.assert_close(estimate_class_prior(probabilities, source), expected)
    for shrinkage, first in ((0.0, 0.75), (0.5, 0.625), (1.0, 0.5)):
        found = estimate_class_prior(probabilities.double(), shrinkage=shrinkage)
        torch.testing.assert_close(found, torch.tensor([first, 1 - first]))


@given(
    counts=st.lists(st.integers(0, 9), min_size=2, max_size=6).filter(any),
    seed=st.integers(0, 99),
    sure=st.floats(0, 9) | st.just(1e9),
)
def test_the_estimate_lies_between_the_counts_and_equal_classes(counts: list[int], seed: int, sure: float) -> None:
    """Certain predictions are counted; the order of samples and classes does not matter."""
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(len(labels), len(counts), generator=generator)
    probabilities = (noise + sure * torch.eye(len(counts))[labels]).softmax(1)
    found = estimate_class_prior(probabilities)
    counted = torch.bincount(probabilities.argmax(1), minlength=len(counts)) / len(labels)
    assert ((found - 1 / len(counts)) * (counted - found) > -1e-6).all()
    assert float(found.sum()) == pytest.approx(1, abs=1e-5)
    if sure == 1e9:
        torch.testing.assert_close(found, torch.tensor(counts) / sum(counts), rtol=1e-3, atol=1e-3)
    samples, classes = torch.randperm(len(labels), generator=generator), torch.randperm(len(counts))
    torch.testing.assert_close(estimate_class_prior(probabilities[samples][:, classes]), found[classes])


HALF = torch.tensor([[0.5, 0.5]])


@pytest.mark.parametrize(
    ("probabilities", "options", "message"),
    [
        (torch.zeros(0, 3), {}, "shape"),
        (torch.zeros(3), {}, "shape"),
        ([[0.5, 0.5]], {}, "probabilities are a list"),
        (torch.tensor([[torch.nan, 1.0]]), {}, "finite"),
        (torch.tensor([[-0.1, 1.1]]), {}, "at least 0"),
        (torch.tensor([[0.0, 0.0]]), {}, "positive sum"),
        (HALF, {"shrinkage": 1.5}, "shrinkage"),
        (HALF, {"source_prior": torch.tensor([1.0, 0.0])}, "source_prior"),
        (HALF, {"source_prior": torch.tensor([1.0])}, "source_prior must be 2 numbers"),
    ],
)
def test_bad_predictions(probabilities, options, message: str) -> None:
    with pytest.raises(UserError, match=message):
        estimate_class_prior(probabilities, **options)
