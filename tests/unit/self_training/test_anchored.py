"""Votes, their threshold and anchored targets are those of Eq. 1-3 and of the authors' code, step by step."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.naive import argmax, softmax
from tests.support.refusals import one_line
from tllib_ancon import methods
from tllib_ancon.self_training import AnchoredConfidence, TemporalEnsemble

CONVENTIONS = ("authors", "paper")


class NaiveAnCon:
    """Eq. 1-3 of the paper, one sample at a time: it keeps every prediction and sums them anew at each visit."""

    def __init__(self, num_classes, smoothing, beta, convention, normalize=False):
        self.num_classes = num_classes
        self.smoothing = smoothing
        self.beta = beta
        self.convention = convention
        self.normalize = normalize
        self.batch_means = []
        self.history = {}

    def threshold(self):
        """δ_m from the whole history of batch means."""
        last = len(self.batch_means) - 1
        terms = []
        for step, mean in enumerate(self.batch_means):
            weight = (1 - self.beta) * self.beta ** (last - step)
            terms.append(weight * mean)
        if self.convention == "authors":
            terms[0] = self.beta**last * self.batch_means[0]
        return sum(terms)

    def ensemble(self, index):
        votes = [float(self.history.get(index, []).count(k)) for k in range(self.num_classes)]
        if self.normalize and sum(votes):
            return [vote / sum(votes) for vote in votes]
        return votes

    def visit(self, indices, logits):
        probabilities = [softmax(row) for row in logits]
        before = [self.ensemble(index) for index in indices]
        self.batch_means.append(sum(max(row) for row in probabilities) / len(probabilities))
        threshold = self.threshold()
        for index, row in zip(indices, probabilities, strict=True):
            above = max(row) > threshold
            if above or (self.convention == "authors" and max(row) == threshold):
                self.history.setdefault(index, []).append(argmax(row))
        after = [self.ensemble(index) for index in indices]
        read = before if self.convention == "authors" else after
        targets = []
        for row, anchor in zip(probabilities, read, strict=True):
            target = [self.smoothing * votes for votes in anchor]
            target[argmax(row)] += 1 - self.smoothing
            targets.append(target)
        return targets


@given(
    st.integers(0, 10_000),
    st.sampled_from(CONVENTIONS),
    st.booleans(),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([0.0, 0.5, 0.9]),
)
def test_against_the_naive_transcription(seed, convention, normalize, smoothing, beta):
    """Batches of any size over few samples: repeated visits, within a batch too, ties within a row, one-class and
    one-sample batches."""
    generator = torch.Generator().manual_seed(seed)
    samples, classes = torch.randint(1, 6, (2,), generator=generator).tolist()
    ancon = AnchoredConfidence(samples, classes, smoothing, beta=beta, convention=convention, normalize=normalize)
    naive = NaiveAnCon(classes, smoothing, beta, convention, normalize)
    for batch_size in torch.randint(1, 9, (8,), generator=generator).tolist():
        indices = torch.randint(samples, (batch_size,), generator=generator)
        logits = torch.randn(batch_size, classes, generator=generator).mul(4).round() / 4
        targets = ancon(indices.int(), logits.requires_grad_())
        expected = naive.visit(indices.tolist(), logits.tolist())
        assert not targets.requires_grad
        assert float(ancon.threshold) == pytest.approx(naive.threshold(), rel=1e-5)
        if len(naive.batch_means) > 1 or batch_size > 1:
            assume(not _decides_by_rounding(naive.threshold(), logits.tolist()))
        torch.testing.assert_close(targets, torch.tensor(expected), rtol=1e-5, atol=1e-6)


def _decides_by_rounding(threshold, logits):
    """Whether a confidence is so near δ that float32 and Python may order them differently."""
    confidences = torch.tensor(logits, dtype=torch.float64).softmax(1).amax(1)
    return bool(((confidences - threshold).abs() < 1e-6).any())


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("constant", [0.3] * 5), ("full", [0.0, 0.25, 0.5, 0.75, 1.0]), ("half", [0.0, 0.5, 1.0, 1.0, 1.0])],
)
def test_schedules(schedule, expected):
    if schedule != "constant":
        with one_line(f'^`schedule="{schedule}"` needs `total_steps`; pass the number of steps of the whole training$'):
            AnchoredConfidence(1, 2, schedule=schedule)
    ancon = AnchoredConfidence(1, 2, schedule=schedule, total_steps=4)
    smoothings = []
    for _ in expected:
        smoothings.append(float(ancon.smoothing))
        ancon(torch.tensor([0]), torch.zeros(1, 2))
    assert smoothings == pytest.approx(expected)


@pytest.mark.parametrize(("unsure", "teaches"), [(60, True), (61, False)])
def test_a_batch_teaches_the_default_where_its_mean_entropy_is_below_six_tenths(unsure, teaches):
    logits = torch.zeros(101, 4)
    logits[unsure:, 1] = 99
    method = methods.create("ancon-auto", num_samples=101, num_classes=4)
    assert bool(method(torch.arange(101), logits, logits)) == teaches


# Which predictions vote

INDICES = torch.tensor([2, 0, 1])
LOGITS = torch.tensor([[2.0, 0.0, -1.0], [0.0, 0.5, 0.0], [0.0, 0.0, 3.0]])
ROWS = [softmax(row) for row in LOGITS.tolist()]
SURE = [max(row) for row in ROWS]


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({"weighting": 0}, [1.0, 1.0, 1.0]),
        ({"weighting": "max-probability"}, SURE),
        ({"weighting": "entropy"}, [math.exp(sum(p * math.log(p) for p in row)) for row in ROWS]),
        ({"weighting": 0.8}, [float(c > 0.8) for c in SURE]),
        ({"weighting": "relative"}, [float(c >= sum(SURE) / 3) for c in SURE]),
    ],
)
def test_weightings(options, weights):
    ensemble = TemporalEnsemble(3, 3, **options)
    normal = TemporalEnsemble(3, 3, normalize=True, **options)
    for _ in range(2):
        ensemble(INDICES, LOGITS)
        normal(INDICES, LOGITS)
    expected = torch.tensor([2 * weight for weight in weights])
    torch.testing.assert_close(ensemble.votes(INDICES), torch.eye(3) * expected[:, None])
    assert int((ensemble.last_weights > 0).sum()) == sum(weight > 0 for weight in weights)
    is_counted = (expected > 0)[:, None]
    torch.testing.assert_close(normal.read(INDICES), torch.eye(3) * is_counted)


def test_soft_predictions_are_summed_with_their_temperature():
    ensemble = TemporalEnsemble(3, 3, weighting=0, temperature=0.5)
    ensemble(INDICES, LOGITS)
    expected = [softmax([value / 0.5 for value in row]) for row in LOGITS.tolist()]
    torch.testing.assert_close(ensemble.votes(INDICES), torch.tensor(expected))


def test_the_confidence_may_be_of_another_distribution():
    ensemble = TemporalEnsemble(3, 3, weighting=0.8)
    ensemble(INDICES, LOGITS, torch.full((3, 3), 0.3))
    assert not ensemble.votes(INDICES).any()
