from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.faults import hostile, table
from benchmarks.faults.kills import _is_right
from benchmarks.faults.outcomes import differences, outcome
from benchmarks.faults.processes import Ended, Kill

TWO = ("--commands", "adapt, AnCon", "predict")


def campaign(out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.faults", "--out", str(out), "--no-disk", *TWO, *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_a_few_faults_and_the_same_command_with_more(tmp_path: Path) -> None:
    done = campaign(tmp_path, "--kills", "1", "--hostile", "0")
    assert done.returncode == 0, done.stderr
    assert "| all | 1 |" in done.stdout
    more = campaign(tmp_path, "--kills", "2", "--hostile", "1")
    assert more.returncode == 0, more.stderr
    assert [line.partition(":")[0] for line in more.stderr.splitlines()] == ["kill 1", "hostile 0"]
    assert (tmp_path / "faults.md").read_text() == more.stdout
    assert "| all | 2 |" in more.stdout


def test_any_bit_and_any_file_is_compared(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        torch.save({"weight": torch.zeros(3), "step": 1}, tmp_path / name / "model.pth")
        np.savez(tmp_path / name / "votes.npz", votes=np.arange(3))
        (tmp_path / name / "metrics.jsonl").write_text(f'{{"loss": 0.5, "images_per_second": {len(name)}}}\n')
        (tmp_path / name / "out.csv").write_text("path,label\na,1\n")
    assert differences(outcome(tmp_path / "first"), outcome(tmp_path / "second")) == []
    torch.save({"weight": torch.tensor([0.0, -0.0, 0.0]), "step": 1}, tmp_path / "second/model.pth")
    np.savez(tmp_path / "second/votes.npz", votes=np.array([0, 1, 3]))
    (tmp_path / "second/metrics.jsonl").write_text('{"loss": 0.25}\n')
    (tmp_path / "second/out.csv").write_text("path,label\na,2\n")
    (tmp_path / "second/left.partial").write_text("")
    assert sorted(differences(outcome(tmp_path / "first"), outcome(tmp_path / "second"))) == [
        "/left.partial (missing)",
        "/metrics.jsonl[0]/loss",
        "/model.pth/weight",
        "/out.csv[1][1]",
        "/votes.npz/votes",
    ]


@pytest.mark.parametrize(
    ("status", "errors", "right"),
    [
        (0, "", True),
        (143, "tllib-ancon: stopped by SIGTERM", True),
        (143, "Traceback (most recent call last):", False),
        (-15, "", True),
        (1, "", False),
        (2, "state.pth could not be written", False),
    ],
)
def test_an_exit_that_does_not_say_why_is_wrong(status: int, errors: str, right: bool) -> None:
    ended = Ended(status, errors, 1.0, left=False)
    assert _is_right(ended, Kill(0.1, signal.SIGTERM, group=True), launched=False) is right


@pytest.mark.parametrize(
    ("errors", "right"),
    [
        ("", True),
        ("tllib-ancon: error: no room", True),
        ("tllib-ancon: a note\ntllib-ancon: error: no room", True),
        ("tllib-ancon: error: no room\ntllib-ancon: error: no room", False),
        ("Traceback (most recent call last):\nValueError", False),
    ],
)
def test_an_error_is_one_line_after_notes(errors: str, right: bool) -> None:
    assert Ended(2, errors, 1.0, left=False).in_one_line is right


BORNE: dict[str, Any] = {
    "kind": "kill",
    "command": "predict",
    "finished": False,
    "wrong_exit": "",
    "continued": 0,
    "differing": [],
    "left": False,
}


@pytest.mark.parametrize(
    ("change", "row"),
    [
        ({}, "| all | 1 | 0 | 0 | 0 | 0 | 0 |"),
        ({"wrong_exit": "1: Traceback"}, "| all | 1 | 0 | 1 | 0 | 0 | 0 |"),
        ({"continued": 2}, "| all | 1 | 0 | 0 | 1 | 0 | 0 |"),
        ({"differing": ["/model.pth/weight"]}, "| all | 1 | 0 | 0 | 0 | 1 | 0 |"),
        ({"left": True}, "| all | 1 | 0 | 0 | 0 | 0 | 1 |"),
    ],
)
def test_what_was_not_borne_is_counted_and_listed(change: dict[str, Any], row: str) -> None:
    record = {**BORNE, **change}
    assert row in table.markdown([record])
    assert table.is_wrong(record) is bool(change)
    assert ("## What went wrong" in table.markdown([record])) is bool(change)


@pytest.mark.parametrize("damage", hostile.DAMAGES)
def test_a_damage_changes_a_file_and_repeats(damage) -> None:
    content = b'{"epoch": 1, "loss": 0.5}'
    changed = [damage(content, random.Random(number)) for number in range(20)]
    assert any(other != content for other in changed)
    assert changed == [damage(content, random.Random(number)) for number in range(20)]
