import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.domains_on_disk import small_arguments
from tests.end_to_end.killable import differences, last_epoch, outcome, start, wait_for
from tllib_ancon.cli.main import main
from tllib_ancon.training.run import RunDirectory

ON_DEVICE = "ancon --device-augmentation --train-resizing default --image-size 14 --override"
LENGTH, NAMES = ("-b", "8", "--epochs", "4"), ("whole", "cut")
KILLS_BY_TIME, KILLS_BY_EVENT = 3, 4
KILLS_BY_WRITE, WRITES_OF_AN_EPOCH = 5, 15
EVENTS = 80
"""Steps, flushes and renames of a run, about."""


def ended(command: list[str], seconds: float | None = None, **when: int) -> int:
    """The exit status of a command that is killed after so many seconds, or by itself."""
    process = start(command, **when)
    process.join(seconds)
    process.kill()
    process.join()
    return process.exitcode


@pytest.mark.parametrize("method", ["nrc+ancon", ON_DEVICE])
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been(adapt, tmp_path: Path, method: str) -> None:
    def command(name: str) -> list[str]:
        return adapt(name, *LENGTH, "--method", *method.split())

    _kill_and_compare(command, tmp_path, random.Random(method), KILLS_BY_TIME, KILLS_BY_EVENT)


@pytest.mark.parametrize("method", ["erm", "cdan"])
def test_the_training_of_a_source_model_continues_too(domains: Path, tmp_path: Path, method: str) -> None:
    def command(name: str) -> list[str]:
        more = ("-t", "dark", "-i", "5") if method == "cdan" else ()
        log = ("--log", str(tmp_path / name))
        return ["pretrain", *small_arguments(domains), *LENGTH, *log, "--method", method, *more]

    _kill_and_compare(command, tmp_path, random.Random(0), 1, 2)


def test_a_run_that_is_killed_while_it_writes_an_epoch_and_trains_the_next(adapt, tmp_path: Path) -> None:
    whole, cut = (adapt(name, *LENGTH, "--save-predictions") for name in NAMES)
    assert ended(whole) == 0
    generator = random.Random(0)
    for _ in range(KILLS_BY_WRITE):
        assert ended(cut, writes_until_kill=generator.randrange(1, WRITES_OF_AN_EPOCH)) == -signal.SIGKILL
    assert ended(cut) == 0
    assert differences(*(outcome(tmp_path / name) for name in NAMES)) == []


def _kill_and_compare(command, tmp_path: Path, generator: random.Random, by_time: int, by_event: int) -> None:
    assert ended(["--version"]) == 0  # the server has started
    started = time.perf_counter()
    assert ended(command("whole")) == 0
    seconds = time.perf_counter() - started
    expected = outcome(tmp_path / "whole")
    directories = iter(range(100))
    cut = f"cut-{next(directories)}"
    kills = [lambda: ended(command(cut), generator.uniform(0, seconds))] * by_time
    kills += [lambda: ended(command(cut), events_until_kill=generator.randrange(1, EVENTS))] * by_event
    generator.shuffle(kills)
    while kills:
        status = kills[-1]()
        assert status in (0, -signal.SIGKILL)
        if status:
            kills.pop()
        else:
            assert differences(expected, outcome(tmp_path / cut)) == []
            cut = f"cut-{next(directories)}"
    assert ended(command(cut)) == 0
    assert differences(expected, outcome(tmp_path / cut)) == []


def test_another_process_that_writes_there_is_refused_until_it_is_dead(adapt, tmp_path: Path, refused) -> None:
    command = adapt("run", "-b", "8", "--epochs", "1000", "-j", "1")
    first = start(command)
    wait_for(lambda: last_epoch(tmp_path / "run") >= 0)
    assert f"is in use: process {first.pid} on " in refused(command)
    first.kill()
    first.join()
    third = start(command)
    kept = last_epoch(tmp_path / "run")
    wait_for(lambda: last_epoch(tmp_path / "run") > kept or third.exitcode is not None)
    assert third.exitcode is None
    third.kill()
    third.join()


def test_a_finished_run_says_so(adapt, tmp_path: Path, capsys) -> None:
    words = [word for word in adapt() if word != "--quiet"]
    assert main(words) == 0
    path = tmp_path / "run" / "result.json"
    result, first = path.read_bytes(), capsys.readouterr().out
    assert main(words) == 0
    shown = capsys.readouterr()
    assert f"{tmp_path / 'run'} holds this run already, finished" in shown.err
    assert (shown.out, path.read_bytes()) == (first, result)
    path.write_text(json.dumps({"sha256": json.loads(result)["sha256"], "start": 3}))
    assert main(words) == 0
    assert capsys.readouterr().out == first


def test_a_signal_while_the_last_epoch_is_saved_is_not_swallowed(adapt, tmp_path: Path, monkeypatch) -> None:
    words, save = adapt("run", *LENGTH), RunDirectory.save_epoch

    def save_and_signal(self: RunDirectory, snapshot: Any, metrics: list[dict[str, Any]], selected: bool) -> None:
        save(self, snapshot, metrics, selected)
        if metrics[-1]["epoch"] == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "save_epoch", save_and_signal)
        assert main(words) == 128 + signal.SIGTERM
    assert not (tmp_path / "run" / "result.json").exists()
    assert main(words) == 0
    assert (tmp_path / "run" / "result.json").exists()


def test_a_run_refused_at_an_image_starts_with_the_corrected_command(copied: Path, adapt, refused) -> None:
    for path in (copied / "dark").rglob("*7.png"):
        path.write_bytes(b"no image")
    assert "cannot be decoded" in refused(adapt(root=copied))
    assert main(adapt("run", "--skip-corrupt", root=copied)) == 0
