from __future__ import annotations

import math

import pytest
import torch

from tests.selection.test_pool import random_logits
from tllib_ancon import config, selection
from tllib_ancon.errors import UserError
from tllib_ancon.selection import (
    CHOICES,
    CRITERIA,
    NEEDS,
    POOL_CRITERIA,
    Mixtures,
    Outputs,
    best_epoch,
    chosen,
    fewest_samples,
    holds_out,
    mixing_pairs,
    selection_spread,
)


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


@pytest.fixture
def pool() -> list[Outputs]:
    """Four models with all that a criterion may need."""
    made = []
    for number, logits in enumerate(random_logits(4, 9, 3, seed=0)):
        passes = random_logits(2, 9, 3, seed=number).softmax(2)
        first, second = mixing_pairs(logits.argmax(1), torch.Generator().manual_seed(number))
        made.append(Outputs(logits, passes, Mixtures(logits[first], first, second)))
    return made


@pytest.mark.parametrize("name", [*CRITERIA, *POOL_CRITERIA])
def test_each_criterion_scores_a_pool(pool: list[Outputs], name: str) -> None:
    criterion = {**CRITERIA, **POOL_CRITERIA}[name]
    assert (criterion.name, criterion.needs in NEEDS, bool(criterion.source)) == (name, True, True)
    scores = criterion.scores(pool)
    assert len(scores) == 4
    assert all(map(math.isfinite, scores))


def test_a_score_is_that_of_its_function(pool: list[Outputs]) -> None:
    last = pool[-1]
    expected = {
        "infomax": selection.infomax(last.probabilities),
        "mano": selection.mano(last.logits),
        "aetta": selection.aetta(last.probabilities, last.dropout),
        "dropout_agreement": selection.dropout_agreement(last.probabilities, last.dropout),
        "ensv": selection.ensv([one.probabilities for one in pool])[-1],
        "last": 3.0,
    }
    for name, score in expected.items():
        assert {**CRITERIA, **POOL_CRITERIA}[name].scores(pool)[-1] == score


def test_what_was_not_stored_has_no_score(pool: list[Outputs]) -> None:
    bare = [Outputs(one.logits) for one in pool]
    for criterion in (*POOL_CRITERIA.values(), CRITERIA["aetta"], CRITERIA["infomax"]):
        missing = [math.isnan(score) for score in criterion.scores(bare)]
        assert missing == [criterion.needs in ("dropout", "mixed")] * 4


def test_asr_takes_the_last_epoch_before_the_first_reset() -> None:
    diverse, collapsed = Outputs(5 * torch.eye(4)), Outputs(50 * torch.eye(4)[[0, 0, 0, 0]])
    scores = POOL_CRITERIA["asr"].scores([diverse, diverse, collapsed, diverse])
    assert scores == [0.0, 1.0, -1.0, -1.0]
    assert POOL_CRITERIA["asr"].scores([collapsed, collapsed]) == [0.0, -1.0]


def test_the_setting_offers_names_that_an_adaptation_can_choose_by() -> None:
    assert set(config.CRITERIA) == set(CHOICES) - {"marginal_entropy"}


def test_an_adaptation_chooses_by_a_score_or_takes_the_last_epoch() -> None:
    metrics = [{"infomax": 1.0}, {"infomax": 3.0}, {"infomax": 2.0}]
    assert [chosen(metrics, name) for name in ("infomax", "last", "none")] == [1, 2, 2]
    assert [name for name in CHOICES if not holds_out(name)] == ["none"]
    assert [name for name in CHOICES if fewest_samples(name) > 1] == ["snd"]
    for call in (lambda: chosen(metrics, "accuracy"), lambda: holds_out("accuracy")):
        with pytest.raises(UserError, match="unknown criterion"):
            call()
    with pytest.raises(UserError, match="no epoch to choose"):
        chosen([], "last")
    with pytest.raises(UserError, match="none of the 3 epochs has a snd score"):
        chosen(metrics, "snd")
