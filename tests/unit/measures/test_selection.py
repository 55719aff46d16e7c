"""Each criterion without labels is the number of its definition, in any order and precision."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import REFUSED, refused
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


@pytest.mark.parametrize(("probabilities", "message"), REFUSED["probabilities"])
def test_bad_probabilities_are_named(probabilities, message):
    for score in (infomax, corr_c, mean_entropy, score_all):
        with refused(message):
            score(torch.tensor(probabilities))
