"""Losses beside their equations in double precision."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Dirichlet, kl_divergence

from tests.support.refusals import one_line
from tllib_ancon.self_training import EarlyLearningRegularization, generalized_cross_entropy, information_maximization
from tllib_ancon.self_training.pseudo_label import belief_matching_loss


def rows(low, high):
    """Four rows of three classes."""
    row = st.lists(st.floats(low, high, width=32), min_size=3, max_size=3)
    return st.lists(row, min_size=4, max_size=4).map(lambda values: torch.tensor(values))


@given(rows(-20, 20), rows(0, 5), st.floats(0.05, 1))
def test_gce(logits, targets, q):
    agreement = (logits.double().softmax(1) * targets).sum(1)
    losses = generalized_cross_entropy(logits, targets, q, "none")
    torch.testing.assert_close(losses.double(), (1 - agreement**q) / q, rtol=1e-4, atol=1e-4)
    assert generalized_cross_entropy(logits, targets, q) == losses.mean()
    assert generalized_cross_entropy(logits, targets, q, "sum") == losses.sum()


@given(rows(-4, 5), rows(0, 2), st.floats(0, 1))
def test_belief_matching(logits, targets, coefficient):
    alpha = logits.double().exp()
    expected_logs = alpha.digamma() - alpha.sum(1, keepdim=True).digamma()
    divergence = kl_divergence(Dirichlet(alpha), Dirichlet(torch.ones_like(alpha)))
    expected = (coefficient * divergence - (targets * expected_logs).sum(1)).mean()
    found = belief_matching_loss(logits, targets, coefficient)
    assert float(found) == pytest.approx(float(expected), rel=1e-4, abs=1e-3)


@given(st.lists(rows(-20, 20), min_size=1, max_size=3), st.sampled_from([0.0, 0.5, 0.9]))
def test_early_learning_regularization(batches, beta):
    module = EarlyLearningRegularization(4, 3, 2.0, beta)
    targets = torch.zeros(4, 3).double()
    for logits in batches:
        predictions = logits.double().softmax(1).clamp(1e-4, 1 - 1e-4)
        targets = beta * targets + (1 - beta) * predictions / predictions.sum(1, keepdim=True)
        expected = 2 * (1 - (targets * predictions).sum(1)).log().mean()
        assert float(module(torch.arange(4), logits)) == pytest.approx(float(expected), rel=1e-3)


@given(rows(-20, 20))
def test_information_maximization(logits):
    predictions = logits.double().softmax(1)
    mean = predictions.mean(0)
    entropies = -(predictions * (predictions + 1e-5).log()).sum(1)
    entropy_of_mean = -(mean * (mean + 1e-5).log()).sum()
    found = float(information_maximization(logits))
    assert found == pytest.approx(float(entropies.mean() - entropy_of_mean), abs=1e-5)
    assert -math.log(3) - 1e-4 <= found <= 1e-4
    with one_line(r"logits have shape \(3,\) and dtype torch.float32; expected a torch.Tensor of shape \(B, K\) and"):
        information_maximization(logits[0])
