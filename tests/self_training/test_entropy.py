"""Losses that are entropies of the predictions, beside their equations in plain Python."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.self_training.naive import dot, softmax, unit
from tllib_ancon import methods
from tllib_ancon.self_training import SampleEfficientEntropy, softmax_entropy

ROWS = st.lists(st.lists(st.floats(-9, 9, width=32), min_size=3, max_size=3), min_size=1, max_size=5)
CERTAIN = [9.0, 0.0, 0.0]
UNCERTAIN = [0.5, 0.0, 0.0]


def entropy(row):
    return -sum(p * math.log(p) for p in softmax(row) if p)


class NaiveETA:
    """A visit gives the loss and the rows that count; the moving average is None before there is one."""

    def __init__(self, margin):
        self.margin = margin
        self.average = None

    def visit(self, logits):
        largest = 0.4 * math.log(len(logits[0]))
        chosen = [row for row in logits if entropy(row) < largest]
        if self.average is not None:
            average = unit(self.average)
            chosen = [row for row in chosen if dot(unit(softmax(row)), average) < self.margin]
        if not chosen:
            return 0.0, []
        predictions = map(softmax, chosen)
        mean = [sum(column) / len(chosen) for column in zip(*predictions, strict=True)]
        old = mean if self.average is None else self.average
        self.average = [0.9 * before + 0.1 * now for before, now in zip(old, mean, strict=True)]
        losses = [math.exp(largest - entropy(row)) * entropy(row) for row in chosen]
        return sum(losses) / len(chosen), chosen


def test_entropy_where_a_probability_underflows():
    logits = torch.tensor([[0.0, 300.0], [2.0, 2.0]], requires_grad=True)
    found = softmax_entropy(logits)
    torch.testing.assert_close(found.detach(), torch.tensor([0.0, math.log(2)]))
    assert torch.equal(torch.autograd.grad(found.sum(), logits)[0], torch.zeros(2, 2))


@given(st.lists(ROWS, min_size=1, max_size=4), st.floats(0.3, 0.95))
def test_selected_entropy_against_a_naive_transcription(batches, margin):
    naive = NaiveETA(margin)
    module = SampleEfficientEntropy(3, similarity_margin=margin)
    for logits in batches:
        given = torch.tensor(logits, requires_grad=True)
        loss = module(given)
        (expected, chosen) = naive.visit(logits)
        assert float(loss.detach()) == pytest.approx(expected, rel=1e-3, abs=1e-5)
        average = torch.tensor(naive.average or [0.0] * 3)
        torch.testing.assert_close(module.average, average, rtol=1e-4, atol=1e-5)
        weights = []
        for row in logits:
            weight = math.exp(0.4 * math.log(3) - entropy(row))
            weights.append(weight if row in chosen else 0.0)
        alone = softmax_entropy(given) @ torch.tensor(weights) / max(1, len(chosen))
        gradients = (torch.autograd.grad(one, given)[0] for one in (loss, alone))  # none of the weights
        torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-5)


def test_a_row_that_is_not_finite_and_evaluation_mode_leave_the_average():
    given = SampleEfficientEntropy(3)
    alone = SampleEfficientEntropy(3)
    bad = [[math.nan, 0.0, 0.0], [math.inf, 0.0, 0.0]]
    loss = given(torch.tensor([CERTAIN, UNCERTAIN, *bad]))
    assert torch.equal(loss, alone(torch.tensor([CERTAIN, UNCERTAIN])))
    before = given.average.clone()
    assert float(given.eval()(torch.tensor([CERTAIN[::-1]]))) > 0
    assert float(given.train()(torch.tensor([UNCERTAIN, CERTAIN]))) == 0  # neither certain nor unlike the average
    assert all(torch.equal(average, before) for average in (given.average, alone.average))
    assert torch.equal(before, torch.tensor(CERTAIN).softmax(0))


@pytest.mark.parametrize(("classes", "margin"), [(10, 0.4), (1000, 0.04), (2, 0.8944), (1, 1.0)])
def test_the_default_margin_is_above_the_cosine_of_a_certain_prediction_and_equal_classes(classes, margin):
    found = SampleEfficientEntropy(classes).similarity_margin
    assert found == pytest.approx(margin, abs=1e-4)
    assert found >= 1 / math.sqrt(classes)


def test_tent_leaves_out_rows_that_are_not_finite():
    tent = methods.create("tent", num_samples=5, num_classes=3, feature_dim=2, total_steps=1)
    rows = [CERTAIN, UNCERTAIN]
    bad = [[math.nan, 0.0, 0.0], [math.inf, 0.0, 0.0]]
    logits = torch.tensor([*rows, *bad], requires_grad=True)
    loss = tent(torch.arange(4), logits, torch.zeros(4, 2))
    assert float(loss.detach()) == pytest.approx(sum(map(entropy, rows)) / 2)
    assert torch.autograd.grad(loss, logits)[0][2:].eq(0).all()
    assert float(tent(torch.arange(2), torch.tensor(bad), torch.zeros(2, 2))) == 0
