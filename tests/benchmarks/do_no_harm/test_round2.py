from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.do_no_harm import round2
from benchmarks.do_no_harm.round2 import Candidate, Outcome, Pool, best, choices, guarded, joined, judge, read, scored
from tllib_ancon.errors import UserError
from tllib_ancon.selection import Outputs
from tllib_ancon.training.saved_logits import SavedLogits, write_logits

LABELS = np.arange(40) % 4
EPOCHS = ("epoch-000", "epoch-001", "epoch-002")


def logits(right: int, sharpness: float, collapsed: bool = False) -> np.ndarray:
    """Predictions of which the first ``right`` of 40 are right, the others of the next class or of class 0."""
    wrong = np.where(LABELS == 0, 1, 0) if collapsed else (LABELS + 1) % 4
    said = np.where(np.arange(40) < right, LABELS, wrong)
    return (sharpness * np.eye(4)[said]).astype(np.float32)


def write_run(out: Path, setting: str, run: str, *candidates: np.ndarray, **others: np.ndarray) -> Path:
    path = out / setting / run
    named = dict(zip(EPOCHS, candidates, strict=False)) | others
    for name, array in named.items():
        write_logits(path, name, SavedLogits(np.arange(40), array, LABELS))
    return path


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """One setting gains and grows confident; the other collapses and grows more confident."""
    start = logits(20, 4)
    write_run(tmp_path, "good", "ancon-seed0", start, logits(24, 5), logits(30, 7))
    write_run(tmp_path, "good", "elr-seed0", start, logits(22, 5), logits(28, 6), adabn=logits(32, 4))
    write_run(tmp_path, "bad", "ancon-seed0", start, logits(16, 6, True), logits(12, 9, True))
    return tmp_path


def test_runs_are_read_with_their_accuracies_epochs_first(runs: Path) -> None:
    pools = {(pool.setting, pool.name): pool for pool in read(runs)}
    assert set(pools) == {("good", "ancon-seed0"), ("good", "elr-seed0"), ("bad", "ancon-seed0")}
    elr = pools["good", "elr-seed0"]
    assert [(one.name, round(one.accuracy)) for one in elr.candidates] == [
        ("epoch-000", 50),
        ("epoch-001", 55),
        ("epoch-002", 70),
        ("adabn", 80),
    ]
    assert (elr.start, elr.best) == (50, 80)


def test_choices_among_the_candidates_of_a_run(runs: Path) -> None:
    made = {
        name: {(one.pool.setting, one.pool.name): one.chosen.name for one in outcomes}
        for name, outcomes in choices(scored(read(runs))).items()
    }
    every = [("bad", "ancon-seed0"), ("good", "ancon-seed0"), ("good", "elr-seed0")]
    assert made["start"] == dict.fromkeys(every, "epoch-000")
    assert [made["best (labels)"][run] for run in every] == ["epoch-000", "epoch-002", "adabn"]
    assert made["last"] == dict.fromkeys(every, "epoch-002")
    assert made["mean_entropy"] == dict.fromkeys(every, "epoch-002")
    assert made["mean_entropy or start"] == made["mean_entropy"]
    assert made["corr_c"]["bad", "ancon-seed0"] == "epoch-001"
    assert made["corr_c or start"]["bad", "ancon-seed0"] == "epoch-000"
    assert "last or start" not in made
    assert not {"aetta", "mixval", "dropout_agreement"} & made.keys()


def test_the_verdict_is_the_one_of_the_definitions(runs: Path) -> None:
    found = judge(choices(scored(read(runs)))["last"])
    assert found.pools == 3
    assert found.mean == pytest.approx(((75 + 70) / 2 + 30) / 2)
    assert found.worst == pytest.approx(-20)
    assert found.harm == pytest.approx(100 / 3)
    assert found.regret == pytest.approx(((0 + 10) / 2 + 20) / 2)


def test_all_methods_of_a_setting_and_seed_are_one_pool(runs: Path) -> None:
    (pool,) = joined(read(runs))
    assert (pool.setting, pool.one_run) == ("good", False)
    assert [one.name for one in pool.candidates] == [
        "epoch-000",
        "ancon-seed0/epoch-001",
        "ancon-seed0/epoch-002",
        "elr-seed0/epoch-001",
        "elr-seed0/epoch-002",
        "elr-seed0/adabn",
    ]
    made = choices(scored([pool]))
    assert made["mean_entropy"][0].chosen.name == "ancon-seed0/epoch-002"
    assert not {"last", "asr"} & made.keys()
    assert not any(name.endswith("guarded") for name in made)


def test_runs_from_different_starts_are_no_pool(tmp_path: Path) -> None:
    write_run(tmp_path, "good", "ancon-seed0", logits(20, 1), logits(24, 2))
    write_run(tmp_path, "good", "elr-seed0", logits(21, 1), logits(24, 2))
    write_run(tmp_path, "good", "elr-seed1", logits(22, 1), logits(24, 2))
    with pytest.raises(UserError, match="good: ancon-seed0 and elr-seed0 start from different models"):
        joined(read(tmp_path))


def pool(setting: str, start: float, adapted: float, gain: float) -> Pool:
    outputs = Outputs(torch.zeros(1, 2))
    candidates = [Candidate("epoch-000", outputs, start), Candidate("epoch-001", outputs, adapted)]
    return Pool(setting, "run", candidates, one_run=True, scores={"infomax": [0.0, gain]})


def test_a_threshold_is_fitted_on_the_other_settings_alone() -> None:
    """Gains of 3 help and gains of 1 harm, but on the last setting a gain of 1 would help."""
    pools = [pool("a", 50, 60, 3), pool("b", 50, 40, 1), pool("c", 50, 65, 3), pool("d", 50, 70, 1)]
    outcomes = [Outcome(one, one.candidates[1]) for one in pools]
    taken = guarded(outcomes, lambda pool, at: pool.scores["infomax"][at])
    assert [one.chosen.name for one in taken] == ["epoch-001", "epoch-001", "epoch-001", "epoch-000"]
    assert round2.threshold([(one, one.pool.scores["infomax"][1]) for one in outcomes[:3]]) == 2
    assert round2.threshold([(outcomes[1], 1.0)]) == math.inf
    assert round2.threshold([(outcomes[0], 3.0)]) == -math.inf


def test_the_labels_of_a_setting_do_not_move_its_own_threshold() -> None:
    for accuracy in (0.0, 100.0):
        pools = [pool("a", 50, 60, 3), pool("b", 50, 40, 1), pool("c", 50, accuracy, 2.5)]
        outcomes = [Outcome(one, one.candidates[1]) for one in pools]
        assert guarded(outcomes, lambda pool, at: pool.scores["infomax"][at])[2].chosen.name == "epoch-001"


def test_the_best_score_is_the_first_and_never_nan() -> None:
    assert best([9.0, math.nan, 2.0, 3.0, 3.0], 1.0, first=1) == 3
    assert best([0.0, 2.0, 3.0], -1.0, first=0) == 0


def test_one_command_prints_both_tables_and_writes_every_choice(runs: Path, capsys) -> None:
    assert round2.main([str(runs), "--csv", str(runs / "round2.csv")]) == 0
    shown = capsys.readouterr().out
    assert "3 pools of 2 settings; candidates: bad 3, good 7" in shown
    assert "| last | 3 | 51.25 | -20.0 | 33 % | 12.50 |" in shown
    assert "| start | 3 | 50.00 | +0.0 | 0 % |" in shown
    assert "mixval (needs the predictions of one epoch, and those on mixed images)" in shown
    rows = list(csv.DictReader((runs / "round2.csv").open()))
    last = [row for row in rows if (row["among"], row["choice"], row["setting"]) == ("run", "last", "bad")]
    assert [(row["chosen"], row["accuracy"], row["start"], row["best"]) for row in last] == [
        ("epoch-002", "30.00", "50.00", "50.00")
    ]
    assert {row["among"] for row in rows} == {"run", "setting"}


def test_what_cannot_be_judged_is_said(tmp_path: Path, capsys) -> None:
    assert round2.main([str(tmp_path)]) == 2
    assert "holds no logits of epochs" in capsys.readouterr().err
    path = write_run(tmp_path, "good", "ancon-seed0", logits(20, 1), logits(24, 2))
    (path / "logits" / "epoch-000.npz").rename(path / "logits" / "adabn.npz")
    assert round2.main([str(tmp_path)]) == 2
    assert "does not hold epoch-000, the start" in capsys.readouterr().err
    write_logits(path, "epoch-000", SavedLogits(np.arange(40), logits(20, 1)))
    assert round2.main([str(tmp_path)]) == 2
    assert "has no labels" in capsys.readouterr().err
