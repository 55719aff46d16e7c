from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.evidence.beside import main

RUNS = """pair,start,method,seed,start_accuracy,accuracy
A-D,erm,ancon,0,40.0,50.0
A-D,erm,ancon,1,40.0,52.0
A-D,erm,shot,0,40.0,53.0
A-D,erm,shot,1,40.0,51.0
A-D,erm,shot,2,40.0,99.0
"""


@pytest.fixture
def lists(tmp_path: Path) -> list[str]:
    """The report's list, and the digits', in which the start is a method."""
    (tmp_path / "runs.csv").write_text(RUNS)
    (tmp_path / "digits.csv").write_text("pair,method,seed,accuracy\nM-U,ancon,0,60.0\nM-U,shot,0,60.0\n")
    return [str(tmp_path / "runs.csv"), str(tmp_path / "digits.csv")]


def test_runs_of_one_pair_and_seed_are_compared(lists: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ancon", *lists]) == 0
    assert "| shot | 65.75 | +0.67 ± 1.20 | 1, 1 | -1.00 |" in capsys.readouterr().out  # 3, -1 and 0


def test_the_start_is_a_method_too(lists: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["source-only", *lists]) == 0
    assert "| ancon | 54.00 | +11.00 ± 1.00 | 2, 0 | +10.00 |" in capsys.readouterr().out


def test_a_method_that_was_not_run_is_refused(lists: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["elr", *lists]) == 2
    assert "no run of elr; there are ancon, source-only, shot" in capsys.readouterr().err
