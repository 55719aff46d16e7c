"""Losses beside their equations in plain Python, or beside the values that the authors' code gave."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.naive import dot, softmax
from tllib_ancon.self_training import (
    generalized_cross_entropy,
    information_maximization,
)
from tllib_ancon.self_training.pseudo_label import belief_matching_loss


def naive_gce(logits, target, q):
    return (1 - dot(softmax(logits), target) ** q) / q


def digamma(x):
    """By recurrence to a large argument and the asymptotic series."""
    if x < 12:
        return digamma(x + 1) - 1 / x
    series = 1 / (12 * x**2) - 1 / (120 * x**4) + 1 / (252 * x**6)
    return math.log(x) - 1 / (2 * x) - series


def naive_belief_matching(logits, target, coefficient):
    alpha = [math.exp(value) for value in logits]
    expectations = [digamma(a) - digamma(sum(alpha)) for a in alpha]
    likelihood = dot(target, expectations)
    divergence = math.lgamma(sum(alpha)) - math.lgamma(len(alpha))
    for a, expectation in zip(alpha, expectations, strict=True):
        divergence += (a - 1) * expectation - math.lgamma(a)
    assert divergence > -1e-9
    return coefficient * divergence - likelihood


def rows(low, high):
    row = st.lists(st.floats(low, high, width=32), min_size=3, max_size=3)
    return st.lists(row, min_size=4, max_size=4)


@given(rows(-20, 20), rows(0, 5), st.floats(0.05, 1))
def test_gce_against_a_naive_transcription(logits, targets, q):
    expected = torch.tensor([naive_gce(*row, q) for row in zip(logits, targets, strict=True)])
    for reduction, reduce in (("none", torch.clone), ("mean", torch.mean), ("sum", torch.sum)):
        found = generalized_cross_entropy(torch.tensor(logits), torch.tensor(targets), q, reduction)
        torch.testing.assert_close(found, reduce(expected), rtol=1e-4, atol=1e-4)


@given(rows(-4, 5), rows(0, 2), st.floats(0, 1))
def test_belief_matching_against_a_naive_transcription(logits, targets, coefficient):
    expected = sum(naive_belief_matching(*row, coefficient) for row in zip(logits, targets, strict=True)) / 4
    found = belief_matching_loss(torch.tensor(logits), torch.tensor(targets), coefficient)
    assert float(found) == pytest.approx(expected, rel=1e-4, abs=1e-3)


@given(st.lists(st.lists(st.floats(-20, 20, width=32), min_size=3, max_size=3), min_size=1, max_size=6))
def test_information_maximization_against_a_naive_transcription(logits):
    def entropy(row):
        return -sum(p * math.log(p + 1e-5) for p in row)

    predictions = [softmax(row) for row in logits]
    mean = [sum(row[k] for row in predictions) / len(logits) for k in range(3)]
    found = information_maximization(torch.tensor(logits))
    mean_entropy = sum(map(entropy, predictions)) / len(logits)
    assert float(found) == pytest.approx(mean_entropy - entropy(mean), abs=1e-5)
    assert -math.log(3) - 1e-4 <= float(found) <= 1e-4
    prior = [0.6, 0.4, 0.0]
    log_prior = [math.log(3 * (p + 1e-5)) for p in prior]
    expected = float(found) - dot(mean, log_prior)
    with_prior = information_maximization(torch.tensor(logits), prior=torch.tensor(prior))
    assert float(with_prior) == pytest.approx(expected, abs=1e-4)
