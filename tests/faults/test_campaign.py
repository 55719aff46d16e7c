"""A campaign of random faults resumes, sees every difference, and counts what a command did not survive."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from tests.faults import table
from tests.faults.outcomes import differences, outcome

IN_THE_BACKGROUND = "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); from tests.faults.__main__"
SEED = "5"
"""By this one the signal of kill 2 is SIGINT."""


def test_a_campaign_in_the_background_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    """Signals come at writes, so that no time of this machine decides what they meet."""
    known = {"name": "kill 0", "kind": "kill", "command": "adapt, AnCon", "wrong_exit": "", "left": False}
    (tmp_path / "records.jsonl").write_text(json.dumps(known) + "\n")
    command = [sys.executable, "-c", f"{IN_THE_BACKGROUND} import main; sys.exit(main())", "--out", str(tmp_path)]
    few = ["--kills", "3", "--hostile", "1", "--no-disk", "--planted", "0", "--at-writes", "--seed"]
    command += [*few, SEED, "--commands", "adapt, AnCon"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "faults.md").read_text() == done.stdout
    lines = (tmp_path / "records.jsonl").read_text().splitlines()
    first, write, interrupt, damage = map(json.loads, lines)
    assert first == known
    assert (write["signal"], write["status"]) == ("SIGKILL", -signal.SIGKILL)
    assert (interrupt["signal"], interrupt["status"]) == ("SIGINT", 128 + signal.SIGINT)
    assert all(record["write"].startswith(("opened ", "before ", "after ")) for record in (write, interrupt))
    assert damage["kind"] == "hostile"


def test_any_bit_and_any_file_is_compared(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        torch.save({"weight": torch.zeros(3), "step": 1}, tmp_path / name / "model.pth")
        np.savez(tmp_path / name / "votes.npz", votes=np.arange(3))
        (tmp_path / name / "metrics.jsonl").write_text(f'{{"loss": 0.5, "images_per_second": {len(name)}}}\n')
        (tmp_path / name / "out.csv").write_text("path,label\na,1\n")
        (tmp_path / name / "result.json").write_text("{}")
    assert differences(outcome(tmp_path / "first"), outcome(tmp_path / "second")) == []
    torch.save({"weight": torch.tensor([0.0, -0.0, 0.0]), "step": 1}, tmp_path / "second/model.pth")
    np.savez(tmp_path / "second/votes.npz", votes=np.array([0, 1, 3]))
    (tmp_path / "second/metrics.jsonl").write_text('{"loss": 0.25}\n')
    (tmp_path / "second/out.csv").write_text("path,label\na,2\n")
    (tmp_path / "second/left.partial").write_text("")
    (tmp_path / "second/result.json").write_text("")
    assert sorted(differences(outcome(tmp_path / "first"), outcome(tmp_path / "second"))) == [
        "/left.partial (missing)",
        "/metrics.jsonl[0]/loss",
        "/model.pth/weight",
        "/out.csv[1][1]",
        "/result.json",
        "/votes.npz/votes",
    ]


def test_what_was_not_borne_is_counted_and_listed() -> None:
    wrong = [{"wrong_exit": "1: Traceback"}, {"continued": 2}, {"differing": ["/model.pth/weight"]}, {"left": True}]
    right = {"kind": "kill", "command": "predict", "wrong_exit": "", "left": False}
    records = [right, {**right, "no_effect": True}, *({**right, **change} for change in wrong)]
    assert "| all | 6 | 0 | 1 | 1 | 1 | 1 | 1 |" in table.page(records)
    assert [table.is_wrong(record) for record in records] == [False] * 2 + [True] * 4
    assert ["## What went wrong" in table.page([record]) for record in records] == [False] * 2 + [True] * 4
