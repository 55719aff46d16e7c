from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tllib_ancon.errors import Interrupted
from tllib_ancon.paper import driver
from tllib_ancon.paper.driver import LOG, execute, finished
from tllib_ancon.paper.plan import Run

SOURCES = [Run("source/a", "pretrain", {"root": "a"}), Run("source/b", "pretrain", {"root": "b"})]
NOWHERE = {"data": "Office31", "source": ("A",)}
ADAPTATIONS = [
    Run(f"erm/{number}", "adapt", {"root": str(number)}, f"source/{'ab'[number % 2]}") for number in range(4)
]


class Ended:
    """A process that has ended."""

    def __init__(self, status: int):
        self.status = status

    def wait(self) -> int:
        return self.status


class Commands(list):
    """The words of each command that was run; a command whose last word is in ``broken`` fails."""

    broken: frozenset[str] = frozenset()


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    made = Commands()
    runs = {tuple(run.words): run for run in (*SOURCES, *ADAPTATIONS)}

    def start_nothing(command, **streams):
        words = command[4:]
        made.append(words)
        if words[-1] in made.broken:
            streams["stdout"].write("a traceback\nthe reason\n")
            return Ended(2)
        (tmp_path / runs[tuple(words)].name / "result.json").write_text("{}")
        return Ended(0)

    monkeypatch.setattr(driver.subprocess, "Popen", start_nothing)
    return made


@pytest.mark.parametrize("jobs", [1, 3])
def test_sources_come_first_and_everything_is_made_once(commands, tmp_path: Path, jobs: int) -> None:
    said: list[str] = []
    assert execute([*SOURCES, *ADAPTATIONS], tmp_path, [{}] * jobs, said.append) == []
    assert sorted(words[-1] for words in commands[:2]) == ["a", "b"]
    assert sorted(words[-1] for words in commands[2:]) == ["0", "1", "2", "3"]
    assert len(said) == 6
    assert all(finished(run, tmp_path) for run in (*SOURCES, *ADAPTATIONS))


def test_finished_runs_are_skipped(commands, tmp_path: Path) -> None:
    for run in (SOURCES[0], ADAPTATIONS[0]):
        (tmp_path / run.name).mkdir(parents=True)
        (tmp_path / run.name / "result.json").write_text("{}")
    execute([*SOURCES, *ADAPTATIONS], tmp_path, [{}], print)
    assert [words[-1] for words in commands] == ["b", "1", "2", "3"]


def test_a_failed_run_stops_no_other(commands, tmp_path: Path) -> None:
    commands.broken = frozenset("2")
    (failure,) = execute([*SOURCES, *ADAPTATIONS], tmp_path, [{}] * 2, print)
    assert failure.run == "erm/2"
    assert failure.reason == "exit status 2: the reason"
    assert len(commands) == 6
    assert "a traceback" in (tmp_path / "erm/2" / LOG).read_text()


def test_what_starts_from_a_failed_run_is_not_tried(commands, tmp_path: Path) -> None:
    commands.broken = frozenset("b")
    failures = execute([*SOURCES, *ADAPTATIONS], tmp_path, [{}], print)
    assert [failure.run for failure in failures] == ["source/b", "erm/1", "erm/3"]
    assert failures[1].reason == "needs source/b, which failed"
    assert [words[-1] for words in commands] == ["a", "b", "0", "2"]


def test_a_run_is_the_command_in_a_process_of_its_own(tmp_path: Path) -> None:
    settings = {**NOWHERE, "root": str(tmp_path / "none"), "log": str(tmp_path / "source/none")}
    run = Run("source/none", "pretrain", settings)
    (failure,) = execute([run], tmp_path, [{}], print)
    assert "exit status 2: tllib-ancon: error: dataset root" in failure.reason


STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(120)"


@pytest.fixture
def sleeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[subprocess.Popen[bytes]]]:
    """Make three runs, two at a time, whose commands sleep, and send this process signals, one after the other."""

    def sleeping(numbers: Sequence[int], code: str, said: list[str]) -> list[subprocess.Popen[bytes]]:
        start, started = subprocess.Popen, []

        def start_sleeping(command, **streams):
            started.append(start([sys.executable, "-c", code], **streams))
            if len(started) == 2:
                for wait, number in enumerate(numbers, start=1):
                    threading.Timer(wait, os.kill, (os.getpid(), number)).start()
            return started[-1]

        monkeypatch.setattr(driver.subprocess, "Popen", start_sleeping)
        with pytest.raises(Interrupted, match=signal.Signals(numbers[0]).name):
            execute([*SOURCES, Run("source/c", "pretrain", {"root": "c"})], tmp_path, [{}] * 2, said.append)
        return started

    return sleeping


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_driver_that_gets_a_signal_alone_ends_its_commands_and_says_so(sleeping, number: signal.Signals) -> None:
    before, said = signal.getsignal(number), []
    started = sleeping([number], "import time; time.sleep(120)", said)
    assert [process.poll() for process in started] == [-signal.SIGTERM] * 2
    assert said[-1] == f"{number.name}: the running commands end their step; once more ends them at once"
    assert signal.getsignal(number) == before


def test_a_second_signal_kills_the_commands(sleeping) -> None:
    started = sleeping([signal.SIGINT, signal.SIGINT], STUBBORN, [])
    assert [process.poll() for process in started] == [-signal.SIGKILL] * 2


def test_the_reason_of_a_failure_is_of_this_attempt(commands, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "source/a").mkdir(parents=True)
    (tmp_path / "source/a" / LOG).write_text("of an earlier attempt\n")
    monkeypatch.setattr(driver.subprocess, "Popen", lambda command, **_: Ended(1))
    (failure,) = execute(SOURCES[:1], tmp_path, [{}], print)
    assert failure.reason == "exit status 1: no output"


def test_a_full_disk_fails_the_run_and_names_its_log(commands, tmp_path: Path, monkeypatch) -> None:
    def refuse(file, *_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))

    monkeypatch.setattr(driver, "open", refuse, raising=False)
    failures = execute(SOURCES[:1], tmp_path, [{}], print)
    assert [failure.reason for failure in failures] == [f"{tmp_path / 'source/a' / LOG}: No space left on device"]
    assert commands == []
