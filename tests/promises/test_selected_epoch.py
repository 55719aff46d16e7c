"""The selected epoch is the first with the best score, and without a score nothing is selected."""

import math
from typing import get_args

import pytest

from tests.support.refusals import REFUSED, refused
from tllib_ancon.config.adapt import AdaptConfig, Criterion
from tllib_ancon.measures import selection
from tllib_ancon.measures.selection import CRITERIA, best_epoch
from tllib_ancon.training.result import result_of

METRICS = [{"infomax": 1.0}, {"infomax": 0.5}, {"infomax": 3.0}, {"infomax": 2.0}]


@pytest.mark.parametrize(
    ("scores", "criterion", "expected"),
    [
        ([1.0, 3.0, 2.0], "infomax", 1),
        ([1.0, 3.0, 2.0], "corr_c", 0),
        ([2.0, 1.0, 1.0], "mean_entropy", 1),
        ([math.nan, 1.0, math.nan], "infomax", 1),
        ([-math.inf, math.nan], "infomax", 0),
    ],
)
def test_best_epoch_is_the_first_best(scores, criterion, expected):
    assert best_epoch(scores, criterion) == expected


def test_an_adaptation_chooses_by_a_score_or_takes_the_last_epoch():
    assert {*get_args(Criterion)} == {*CRITERIA, "last"}
    assert [result(METRICS, name)["selected_epoch"] for name in ("infomax", "last")] == [2, 3]
    assert [result(METRICS, name)["better_than_start"] for name in ("infomax", "last")] == [True, None]
    assert result(METRICS[:2], "infomax") == {
        "method": "ancon",
        "criterion": "infomax",
        "held_out": 7,
        "start": METRICS[0],
        "last": METRICS[1],
        "selected_epoch": 1,
        "selected": METRICS[1],
        "better_than_start": False,
    }


def result(metrics, criterion):
    return result_of(AdaptConfig(method="ancon", criterion=criterion), 7, metrics)


@pytest.mark.parametrize(("function", "arguments", "message"), REFUSED["choices"])
def test_what_nothing_can_be_chosen_from(function, arguments, message):
    with refused(message):
        getattr(selection, function)(*arguments)
