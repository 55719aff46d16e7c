from __future__ import annotations

import math
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.selection.naive import ORACLES, naive_mano
from tllib_ancon.errors import UserError
from tllib_ancon.selection import (
    CRITERIA,
    aetta,
    corr_c,
    criteria,
    infomax,
    mano,
    marginal_entropy,
    mean_entropy,
    nuclear_norm,
    score_all,
    snd,
)

SETTINGS = settings(max_examples=40, deadline=None)
shapes = st.tuples(st.integers(2, 12), st.integers(2, 6), st.integers(0, 10**6))


def random_probabilities(num_samples: int, num_classes: int, seed: int, scale: float = 4.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(num_samples, num_classes, generator=generator)).softmax(dim=1)


BY_PREDICTIONS = [name for name, criterion in CRITERIA.items() if criterion.needs == "probabilities"]


def test_every_criterion_has_an_oracle() -> None:
    assert set(ORACLES) == set(BY_PREDICTIONS) == set(CRITERIA) - {"aetta"}
    assert all(name == criterion.name and criterion.source for name, criterion in CRITERIA.items())


@pytest.mark.parametrize("name", BY_PREDICTIONS)
@given(shape=shapes)
@SETTINGS
def test_equals_the_formula(name: str, shape: tuple[int, int, int]) -> None:
    probabilities = random_probabilities(*shape)
    expected = ORACLES[name](probabilities.double().tolist())
    assert CRITERIA[name].function(probabilities) == pytest.approx(expected, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("name", BY_PREDICTIONS)
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
        monkeypatch.setattr(criteria, "SIMILARITIES_AT_ONCE", at_once)
        assert snd(probabilities) == pytest.approx(whole, rel=1e-12)


def test_snd_of_many_samples_is_that_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    probabilities = random_probabilities(60, 5, seed=1)
    whole = snd(probabilities)
    monkeypatch.setattr(criteria, "MOST_COMPARED", 20)
    state = torch.get_rng_state()
    some = snd(probabilities)
    assert torch.equal(torch.get_rng_state(), state)
    assert some == snd(probabilities) != whole
    assert 0 < some < math.log(19)
    monkeypatch.setattr(criteria, "MOST_COMPARED", 60)
    assert snd(probabilities) == whole


def test_snd_of_a_hundred_thousand_samples_takes_seconds() -> None:
    probabilities = random_probabilities(100_000, 3, seed=0)
    started = time.process_time()
    assert 0 < snd(probabilities) < math.log(4095)
    assert time.process_time() - started < 10


def test_the_nuclear_norm_is_its_largest_for_confident_and_spread_predictions() -> None:
    assert nuclear_norm(torch.eye(4).repeat(3, 1)) == pytest.approx(1)
    assert nuclear_norm(torch.eye(4)[[0, 0, 0, 0]]) == pytest.approx(1 / 2)
    assert nuclear_norm(torch.full((8, 4), 0.25)) == pytest.approx(1 / 4)
    assert nuclear_norm(torch.eye(4)[:2]) == pytest.approx(1)


@given(shape=shapes, scale=st.sampled_from([0.1, 1.0, 10.0, 40.0]))
@SETTINGS
def test_mano_equals_its_authors_formula(shape: tuple[int, int, int], scale: float) -> None:
    logits = scale * torch.randn(shape[0], shape[1], generator=torch.Generator().manual_seed(shape[2]))
    assert mano(logits) == pytest.approx(naive_mano(logits.double().tolist()), rel=1e-10, abs=1e-12)
    for threshold in (0.0, 100.0):
        assert mano(logits, 2, threshold) == pytest.approx(
            naive_mano(logits.double().tolist(), 2, threshold), rel=1e-10
        )


def test_mano_normalises_by_softmax_where_logits_are_far_from_uniform() -> None:
    certain = 50 * torch.eye(3).repeat(4, 1)
    assert mano(certain) == pytest.approx(3 ** (-1 / 4))
    assert mano(certain + 1000) == pytest.approx(mano(certain))
    assert mano(torch.zeros(4, 3)) == 0
    assert mano(torch.tensor([[0.0, 1.0, 2.0]])) != pytest.approx(mano(torch.tensor([[1.0, 2.0, 3.0]])))


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (torch.ones(3), "logits have shape"),
        (torch.ones(0, 3), "logits have shape"),
        (torch.tensor([[1, 2]]), "floating-point"),
        (torch.tensor([[0.0, math.inf]]), r"row 0 of the logits \(1 of 1 rows\) is not finite"),
    ],
)
def test_bad_logits_are_named(logits: torch.Tensor, message: str) -> None:
    with pytest.raises(UserError, match=message):
        mano(logits)
    with pytest.raises(UserError, match="norm order"):
        mano(torch.zeros(2, 2), norm_order=0.5)


def test_no_criterion_keeps_a_graph() -> None:
    probabilities = random_probabilities(9, 3, seed=2).requires_grad_()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda tensor: tensor):
        score_all(probabilities)
    assert not kept


def test_half_precision_input_is_computed_in_float64() -> None:
    probabilities = torch.tensor([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125]])
    for name in BY_PREDICTIONS:
        function = CRITERIA[name].function
        assert function(probabilities.bfloat16()) == function(probabilities), name


def test_score_all_scores_what_is_asked() -> None:
    probabilities = random_probabilities(10, 3, seed=3)
    expected = {name: CRITERIA[name].function(probabilities) for name in BY_PREDICTIONS}
    assert score_all(probabilities) == expected
    dropout = torch.stack([random_probabilities(10, 3, seed=seed) for seed in (4, 5)])
    assert score_all(probabilities, dropout=dropout) == expected | {"aetta": aetta(probabilities, dropout)}
    assert math.isnan(score_all(probabilities, ["aetta"])["aetta"])
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
@pytest.mark.parametrize("name", BY_PREDICTIONS)
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
