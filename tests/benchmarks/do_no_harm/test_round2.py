import csv
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.do_no_harm import round2
from benchmarks.do_no_harm.round2 import choices, guarded, joined, read, scored

LABELS = np.arange(40) % 4
EPOCHS = ("epoch-000", "epoch-001", "epoch-002")


def logits(right: int, sharpness: float, collapsed: bool = False) -> np.ndarray:
    """Predictions of which the first ``right`` of 40 are right, the others of the next class or of class 0."""
    wrong = np.where(LABELS == 0, 1, 0) if collapsed else (LABELS + 1) % 4
    said = np.where(np.arange(40) < right, LABELS, wrong)
    return (sharpness * np.eye(4)[said]).astype(np.float32)


def write(run: Path, name: str, **arrays: np.ndarray) -> None:
    (run / "logits").mkdir(parents=True, exist_ok=True)
    np.savez(run / "logits" / f"{name}.npz", **arrays)


def write_run(out: Path, setting: str, run: str, *candidates: np.ndarray, **others: np.ndarray) -> Path:
    path = out / setting / run
    named = dict(zip(EPOCHS, candidates, strict=False)) | others
    for name, array in named.items():
        write(path, name, logits=array, labels=LABELS)
    return path


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """One setting gains and grows confident; the other collapses and grows more confident."""
    start = logits(20, 4)
    write_run(tmp_path, "good", "ancon-seed0", start, logits(24, 5), logits(30, 7))
    write_run(tmp_path, "good", "elr-seed0", start, logits(22, 5), logits(28, 6), adabn=logits(32, 4))
    write_run(tmp_path, "bad", "ancon-seed0", start, logits(16, 6, True), logits(12, 9, True))
    return tmp_path


def taken(runs: pd.DataFrame) -> dict[str, dict[tuple[str, str], str]]:
    """Choice -> setting and pool -> the chosen candidate."""
    return {
        choice: {(row.setting, row.pool): row.chosen for row in own.itertuples()}
        for choice, own in choices(runs).groupby("choice")
    }


def test_choices_among_the_candidates_of_a_run(runs: Path) -> None:
    elr = scored(read(runs)).query("pool == 'elr-seed0'")
    assert elr.candidate.tolist() == ["epoch-000", "epoch-001", "epoch-002", "adabn"]
    assert elr.accuracy.tolist() == pytest.approx([50, 55, 70, 80])
    made = taken(scored(read(runs)))
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


def test_all_methods_of_a_setting_and_seed_are_one_pool(runs: Path) -> None:
    (pool,) = joined(read(runs))
    assert (pool.setting, pool.one_run) == ("good", False)
    adapted = ("ancon-seed0/epoch-001", "ancon-seed0/epoch-002", "elr-seed0/epoch-001", "elr-seed0/epoch-002")
    assert list(pool.candidates) == ["epoch-000", *adapted, "elr-seed0/adabn"]
    made = taken(scored([pool]))
    assert made["mean_entropy"]["good", "seed 0"] == "ancon-seed0/epoch-002"
    assert not {"last", "asr"} & made.keys()
    assert not any(name.endswith("guarded") for name in made)


def measured(*pools: tuple[str, float, float, float]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Of pools, each a setting, two accuracies and what the score gains: the adapted models, and the starts."""
    columns = ["setting", "pool", "candidate", "accuracy", "infomax"]
    starts = pd.DataFrame([(name, "run", "start", start, 0.0) for name, start, _, _ in pools], columns=columns)
    adapted = pd.DataFrame([(name, "run", "adapted", after, gain) for name, _, after, gain in pools], columns=columns)
    return adapted, starts


def chosen(*pools: tuple[str, float, float, float]) -> dict[str, str]:
    found = guarded(*measured(*pools), "infomax")
    return dict(zip(found.setting, found.candidate, strict=True))


def test_a_threshold_is_fitted_on_the_other_settings_alone() -> None:
    """Gains of 3 help and gains of 1 harm, but on the last setting a gain of 1 would help."""
    pools = (("a", 50, 60, 3), ("b", 50, 40, 1), ("c", 50, 65, 3), ("d", 50, 70, 1))
    assert chosen(*pools) == {"a": "adapted", "b": "adapted", "c": "adapted", "d": "start"}

    for accuracy in (0.0, 100.0):  # the labels of a setting do not move its own threshold
        assert chosen(("a", 50, 60, 3), ("b", 50, 40, 1), ("c", 50, accuracy, 2.5))["c"] == "adapted"

    def limit(*rows: tuple[str, float, float, float]) -> float:
        frame = pd.DataFrame(rows, columns=["setting", "accuracy of start", "accuracy", "gain"])
        return round2.threshold(frame)

    assert limit(*pools[:3]) == 2
    assert limit(pools[1]) == math.inf
    assert limit(pools[0]) == -math.inf


def test_one_command_prints_both_tables_and_writes_every_choice(runs: Path, capsys) -> None:
    round2.main([str(runs), "--csv", str(runs / "round2.csv")])
    shown = capsys.readouterr().out
    assert "pools: 3; candidates: bad 3, good 7" in shown
    assert "| last | 3 | 51.25 | -20.0 | 33 % | 12.50 |" in shown
    assert "| start | 3 | 50.00 | +0.0 | 0 % |" in shown
    assert "mixval (needs the predictions of one epoch, and those on mixed images)" in shown
    rows = list(csv.DictReader((runs / "round2.csv").open()))
    last = [row for row in rows if (row["among"], row["choice"], row["setting"]) == ("run", "last", "bad")]
    assert [(row["chosen"], row["accuracy"], row["start"], row["best"]) for row in last] == [
        ("epoch-002", "30.00", "50.00", "50.00")
    ]
    assert {row["among"] for row in rows} == {"run", "setting"}
