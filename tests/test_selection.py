from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tllib_ancon import selection
from tllib_ancon.errors import UserError
from tllib_ancon.selection import (
    CRITERIA,
    best_epoch,
    corr_c,
    infomax,
    marginal_entropy,
    mean_entropy,
    score_all,
    selection_spread,
    snd,
)

SETTINGS = settings(max_examples=40, deadline=None)
shapes = st.tuples(st.integers(2, 12), st.integers(2, 6), st.integers(0, 10**6))


def random_probabilities(num_samples: int, num_classes: int, seed: int, scale: float = 4.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(num_samples, num_classes, generator=generator)).softmax(dim=1)


def naive_entropy(distribution: list[float]) -> float:
    return -sum(p * math.log(p) for p in distribution if p > 0)


def naive_mean_entropy(rows: list[list[float]]) -> float:
    return sum(naive_entropy(row) for row in rows) / len(rows)


def naive_marginal_entropy(rows: list[list[float]]) -> float:
    return naive_entropy([sum(column) / len(rows) for column in zip(*rows, strict=True)])


def naive_infomax(rows: list[list[float]]) -> float:
    return naive_marginal_entropy(rows) - naive_mean_entropy(rows)


def naive_corr_c(rows: list[list[float]]) -> float:
    classes = range(len(rows[0]))
    c = [[sum(row[i] * row[j] for row in rows) for j in classes] for i in classes]
    norm = math.sqrt(sum(c[i][j] ** 2 for i in classes for j in classes))
    target = 1 / math.sqrt(len(classes))
    return math.sqrt(sum((c[i][j] / norm - (target if i == j else 0)) ** 2 for i in classes for j in classes))


def naive_snd(rows: list[list[float]], temperature: float = 0.05) -> float:
    def cosine(a: list[float], b: list[float]) -> float:
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        return dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))

    total = 0.0
    for i, row in enumerate(rows):
        weights = [math.exp(cosine(row, other) / temperature) for j, other in enumerate(rows) if j != i]
        total += naive_entropy([weight / sum(weights) for weight in weights])
    return total / len(rows)


ORACLES = {
    "infomax": naive_infomax,
    "corr_c": naive_corr_c,
    "mean_entropy": naive_mean_entropy,
    "marginal_entropy": naive_marginal_entropy,
    "snd": naive_snd,
}


def test_every_criterion_has_an_oracle() -> None:
    assert set(ORACLES) == set(CRITERIA)
    assert all(name == criterion.name and criterion.source for name, criterion in CRITERIA.items())


@pytest.mark.parametrize("name", CRITERIA)
@given(shape=shapes)
@SETTINGS
def test_equals_the_formula(name: str, shape: tuple[int, int, int]) -> None:
    probabilities = random_probabilities(*shape)
    expected = ORACLES[name](probabilities.double().tolist())
    assert CRITERIA[name].function(probabilities) == pytest.approx(expected, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("name", CRITERIA)
@given(shape=shapes)
@SETTINGS
def test_does_not_depend_on_the_order_of_samples_or_classes(name: str, shape: tuple[int, int, int]) -> None:
    probabilities = random_probabilities(*shape)
    generator = torch.Generator().manual_seed(shape[2])
    rows = torch.randperm(shape[0], generator=generator)
    columns = torch.randperm(shape[1], generator=generator)
    function = CRITERIA[name].function
    assert function(probabilities[rows][:, columns]) == pytest.approx(function(probabilities), rel=1e-12, abs=1e-12)


def test_one_hot_predictions_spread_evenly_are_the_best_there_is() -> None:
    probabilities = torch.eye(4).repeat(3, 1)
    assert infomax(probabilities) == pytest.approx(math.log(4))
    assert mean_entropy(probabilities) == 0
    assert marginal_entropy(probabilities) == pytest.approx(math.log(4))
    assert corr_c(probabilities) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("row", [[1.0, 0, 0, 0], [0.25] * 4, [0.7, 0.1, 0.1, 0.1]])
def test_corr_c_is_worst_for_identical_predictions(row: list[float]) -> None:
    assert corr_c(torch.tensor([row] * 5)) == pytest.approx(math.sqrt(2 - 2 / math.sqrt(4)))


@given(shape=shapes)
@SETTINGS
def test_corr_c_ranks_as_the_correlation_of_tu_et_al(shape: tuple[int, int, int]) -> None:
    probabilities = random_probabilities(*shape).double()
    c = probabilities.T @ probabilities
    cosine = float(c.trace() / (c.norm() * math.sqrt(shape[1])))
    assert corr_c(probabilities) ** 2 == pytest.approx(2 - 2 * cosine, abs=1e-10)


def test_the_printed_entropy_prefers_a_collapsed_model_and_the_cited_one_cannot_tell() -> None:
    collapsed, diverse = torch.eye(4)[[0, 0, 0, 0]], torch.eye(4)
    assert marginal_entropy(collapsed) < marginal_entropy(diverse)
    assert mean_entropy(collapsed) == mean_entropy(diverse) == 0
    assert infomax(collapsed) < infomax(diverse)


def test_snd_prefers_dense_neighborhoods() -> None:
    clustered = torch.eye(4).repeat(5, 1)
    assert snd(clustered) > snd(random_probabilities(20, 4, seed=0))
    assert snd(torch.full((6, 3), 1 / 3)) == pytest.approx(math.log(5))


def test_snd_does_not_depend_on_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    probabilities = random_probabilities(23, 5, seed=1)
    whole = snd(probabilities)
    for at_once in (1, 23 * 4, 23 * 22):
        monkeypatch.setattr(selection, "SIMILARITIES_AT_ONCE", at_once)
        assert snd(probabilities) == pytest.approx(whole, rel=1e-12)


def test_no_criterion_keeps_a_graph() -> None:
    probabilities = random_probabilities(9, 3, seed=2).requires_grad_()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda tensor: tensor):
        score_all(probabilities)
    assert not kept


def test_half_precision_input_is_computed_in_float64() -> None:
    probabilities = torch.tensor([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125]])
    for name, criterion in CRITERIA.items():
        assert criterion.function(probabilities.bfloat16()) == criterion.function(probabilities), name


def test_score_all_scores_what_is_asked() -> None:
    probabilities = random_probabilities(10, 3, seed=3)
    assert score_all(probabilities) == {name: c.function(probabilities) for name, c in CRITERIA.items()}
    assert list(score_all(probabilities, ["snd", "infomax"])) == ["snd", "infomax"]
    with pytest.raises(UserError, match="did you mean 'infomax'"):
        score_all(probabilities, ["infomx"])


@pytest.mark.parametrize(
    ("probabilities", "message"),
    [
        (torch.ones(3), "shape"),
        (torch.ones(0, 3), "shape"),
        (torch.ones(3, 1), "two or more classes"),
        (torch.tensor([[1, 0], [0, 1]]), "floating-point"),
        (torch.tensor([[0.5, 0.5], [math.nan, 0.5]]), r"row 1 .*\(1 of 2 rows\) is not finite"),
        (torch.tensor([[math.inf, 0.5]]), "not finite"),
        (torch.tensor([[0.5, 0.5], [-0.5, 1.5]]), "row 1 .* negative"),
        (torch.tensor([[0.5, 0.502]]), "does not sum to 1; apply softmax"),
    ],
)
@pytest.mark.parametrize("name", CRITERIA)
def test_bad_probabilities_are_named(name: str, probabilities: torch.Tensor, message: str) -> None:
    with pytest.raises(UserError, match=message):
        CRITERIA[name].function(probabilities)


def test_rows_may_sum_to_one_within_the_tolerance() -> None:
    assert mean_entropy(torch.tensor([[0.5, 0.5009]])) == pytest.approx(math.log(2), abs=1e-3)


def test_snd_names_what_it_cannot_do() -> None:
    with pytest.raises(UserError, match="at least two"):
        snd(torch.tensor([[0.5, 0.5]]))
    with pytest.raises(UserError, match="temperature"):
        snd(torch.eye(2), temperature=0)


@pytest.mark.parametrize(
    ("scores", "criterion", "expected"),
    [
        ([1.0, 3.0, 2.0], "infomax", 1),
        ([1.0, 3.0, 2.0], "corr_c", 0),
        ([2.0, 1.0, 1.0], "mean_entropy", 1),
        ([1.0, 2.0, 2.0], "snd", 1),
        ([math.nan, 1.0, math.nan], "infomax", 1),
        ([math.nan, 1.0, 0.5], "corr_c", 2),
        ([-math.inf, math.nan], "infomax", 0),
    ],
)
def test_best_epoch_is_the_first_best(scores: list[float], criterion: str, expected: int) -> None:
    assert best_epoch(scores, criterion) == expected


def test_best_epoch_names_what_is_wrong() -> None:
    for scores in ([], [math.nan, math.nan]):
        with pytest.raises(UserError, match="none of the"):
            best_epoch(scores, "infomax")
    with pytest.raises(UserError, match="unknown criterion"):
        best_epoch([1.0], "accuracy")


def test_selection_spread() -> None:
    assert selection_spread({"infomax": 70.5, "corr_c": 68.0, "mean_entropy": 71.0}) == pytest.approx(3.0)
    assert selection_spread({"infomax": 70.5}) == 0
    for bad in ({}, {"infomax": math.nan, "snd": 1.0}):
        with pytest.raises(UserError, match="one accuracy per criterion"):
            selection_spread(bad)
