"""Losses that are entropies of the predictions, beside their equations in plain Python."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.naive import dot, softmax, unit
from tllib_ancon.self_training import SampleEfficientEntropy, softmax_entropy

ROWS = st.lists(st.lists(st.floats(-9, 9, width=32), min_size=3, max_size=3), min_size=1, max_size=5)


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
