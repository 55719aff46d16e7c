"""Signals to a command and to the processes that it starts: one line, 128 plus the signal's number."""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.killable import differences, last_epoch, outcome, start, wait_for
from tllib_ancon.cli.main import main

MORE = ("-b", "8", "-j", "2", "--epochs", "12")


def workers_of(pid: int) -> list[psutil.Process]:
    children = psutil.Process(pid).children()
    return [child for child in children if child.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize(
    ("number", "send"), [(signal.SIGTERM, os.killpg), (signal.SIGINT, os.killpg), (signal.SIGTERM, os.kill)]
)
def test_a_signal_to_all_processes_of_a_run_or_to_the_first_is_one_line_and_the_run_continues(
    adapt, tmp_path: Path, number: signal.Signals, send: Callable[[int, int], None]
) -> None:
    generator, errors = random.Random(number), tmp_path / "errors.txt"
    for _ in range(2):
        kept = last_epoch(tmp_path / "cut")
        process = start(adapt("cut", *MORE), errors=errors)
        wait_for(lambda kept=kept: last_epoch(tmp_path / "cut") > kept)
        time.sleep(generator.uniform(0, 0.05))
        send(process.pid, number)
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == 128 + number, errors.read_text()
        (line,) = errors.read_text().splitlines()
        assert line.startswith(f"tllib-ancon: stopped by {number.name} ")
        assert line.endswith("the same command continues after the last complete epoch")
    assert main(adapt("cut", *MORE, "-j", "0")) == 0
    assert main(adapt("whole", *MORE, "-j", "0")) == 0
    assert differences(*(outcome(tmp_path / name) for name in ("whole", "cut"))) == []


def test_a_lost_worker_is_one_line_that_says_what_to_do(adapt, tmp_path: Path) -> None:
    process = start(adapt("run", *MORE), errors=tmp_path / "errors.txt")
    wait_for(lambda: last_epoch(tmp_path / "run") > 0)
    workers_of(process.pid)[-1].kill()
    process.join(240)
    assert process.exitcode == 2
    (line,) = (tmp_path / "errors.txt").read_text().splitlines()
    assert line.startswith("tllib-ancon: error: a process that loads images ended without a word (")
    assert line.endswith("; where memory is short, pass fewer --workers or a smaller --batch-size")
    assert main(adapt("run", *MORE, "-j", "0")) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_first_step_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys, number: int) -> None:
    def ended(words: list[str]) -> None:
        os.kill(os.getpid(), number)
        time.sleep(1)

    monkeypatch.setattr("tllib_ancon.cli.main.parse", ended)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where this was begun in the background
    assert main(["adapt"]) == 128 + number
    signal.signal(signal.SIGINT, before)
    name = signal.Signals(number).name
    assert capsys.readouterr().err == f"tllib-ancon: stopped by {name}; give the same command again\n"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
