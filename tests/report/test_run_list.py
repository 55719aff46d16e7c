from __future__ import annotations

import csv
from pathlib import Path

from tests.report.fabricated import write_run
from tllib_ancon.report.report import write_report
from tllib_ancon.report.run_list import runs_csv
from tllib_ancon.report.runs import read_runs


def lines(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def test_a_line_a_run_with_its_numbers(tmp_path: Path) -> None:
    write_run(tmp_path, "ancon", "A-D", seed=1)
    write_run(tmp_path, "ancon", "A-D", seed=0, accuracies=(40.0, 70.0))
    write_run(tmp_path, "elr", "D-A", accuracies=(12.3456, 50.0))
    write_report([tmp_path], out=tmp_path / "report")
    elr, first, second = lines((tmp_path / "report" / "runs.csv").read_text())
    assert first == {
        "pair": "A-D",
        "start": "erm",
        "method": "ancon",
        "seed": "0",
        "selected_epoch": "1",
        "start_accuracy": "40.0000",
        "start_ece": "0.0400",
        "accuracy": "70.0000",
        "ece": "0.0700",
        "last_accuracy": "70.0000",
        "last_ece": "0.0700",
    }
    assert (second["seed"], second["accuracy"], second["selected_epoch"]) == ("1", "60.0000", "2")
    assert (elr["pair"], elr["method"], elr["start_accuracy"]) == ("D-A", "elr", "12.3456")


def test_settings_that_a_table_compares_are_columns(tmp_path: Path) -> None:
    write_run(tmp_path, "ancon", smoothing=0.1)
    write_run(tmp_path, "ancon", smoothing=0.3)
    made = lines(runs_csv(read_runs([tmp_path])[0], ["smoothing"]))
    assert sorted(line["smoothing"] for line in made) == ["0.1", "0.3"]


def test_without_labels_no_score(tmp_path: Path) -> None:
    write_run(tmp_path, "ancon", "clean-fog/3", labelled=False)
    (line,) = lines(runs_csv(read_runs([tmp_path])[0], []))
    assert (line["pair"], line["accuracy"], line["last_ece"]) == ("fog/3", "", "")
