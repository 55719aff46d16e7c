"""Each criterion without labels is the number of its definition, in any order and precision."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refused
from tllib_ancon.measures.selection import CRITERIA, corr_c, infomax, mean_entropy, score_all


def naive_entropy(distribution):
    return -sum(p * math.log(p) for p in distribution if p > 0)


def naive_mean_entropy(rows):
    return sum(naive_entropy(row) for row in rows) / len(rows)


def naive_infomax(rows):
    mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    return naive_entropy(mean) - naive_mean_entropy(rows)


def naive_corr_c(rows):
    classes = range(len(rows[0]))
    products = {}
    for i, j in itertools.product(classes, repeat=2):
        products[i, j] = sum(row[i] * row[j] for row in rows)
    norm = math.sqrt(sum(product**2 for product in products.values()))
    total = 0.0
    for (i, j), product in products.items():
        target = 1 / math.sqrt(len(classes)) if i == j else 0
        total += (product / norm - target) ** 2
    return math.sqrt(total)


ORACLES = {
    "infomax": naive_infomax,
    "corr_c": naive_corr_c,
    "mean_entropy": naive_mean_entropy,
}


def random_probabilities(samples, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    return (4 * torch.randn(samples, classes, generator=generator)).softmax(1)


@given(shape=st.tuples(st.integers(2, 12), st.integers(2, 6), st.integers(0, 10**6)))
def test_a_score_is_that_of_the_formula_in_any_order_and_precision(shape):
    assert set(ORACLES) == set(CRITERIA)
    probabilities = random_probabilities(*shape)
    expected = {name: oracle(probabilities.double().tolist()) for name, oracle in ORACLES.items()}
    scores = score_all(probabilities)
    assert scores == {name: pytest.approx(score, rel=1e-10, abs=1e-12) for name, score in expected.items()}
    generator = torch.Generator().manual_seed(shape[2])
    rows = torch.randperm(shape[0], generator=generator)
    columns = torch.randperm(shape[1], generator=generator)
    shuffled = score_all(probabilities[rows][:, columns])
    assert shuffled == {name: pytest.approx(score, rel=1e-12, abs=1e-12) for name, score in scores.items()}
    correlation = probabilities.double().T @ probabilities.double()
    cosine = float(correlation.trace() / (correlation.norm() * math.sqrt(shape[1])))
    assert scores["corr_c"] ** 2 == pytest.approx(2 - 2 * cosine, abs=1e-10)  # as Tu et al. rank


SHAPE = "and dtype torch.float32; give (N, K) of a floating type: a row per sample, two or more classes"
DIVERGED = "the model has probably diverged; try a lower learning rate"
SOFTMAX = "apply softmax, in float32 or better, to logits first"


@pytest.mark.parametrize(
    ("probabilities", "message"),
    [
        (torch.ones(3), f"probabilities have shape (3,) {SHAPE}"),
        (torch.eye(2).long(), f"probabilities have shape (2, 2) {SHAPE.replace('float32', 'int64')}"),
        (
            torch.tensor([[0.5, 0.5], [math.nan, 0.5]]),
            f"row 1 of the probabilities (1 of 2 rows) is not finite; {DIVERGED}",
        ),
        (
            torch.tensor([[0.5, 0.5], [-0.5, 1.5]]),
            "row 1 of the probabilities (1 of 2 rows) has a negative entry; apply softmax to logits first",
        ),
        (torch.tensor([[0.5, 0.502]]), f"row 0 of the probabilities (1 of 1 rows) does not sum to 1; {SOFTMAX}"),
    ],
)
def test_bad_probabilities_are_named(probabilities, message):
    for score in (infomax, corr_c, mean_entropy, score_all):
        with refused(message):
            score(probabilities)
