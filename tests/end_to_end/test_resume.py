from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.domains_on_disk import small_arguments
from tests.end_to_end.killable import differences, outcome, start
from tllib_ancon.cli.main import main
from tllib_ancon.training.run_directory import RunDirectory

METHODS = ("self-training", "elr", "ancon", "gce", "nrc+ancon")
KILLS_BY_TIME, KILLS_BY_EVENT = 3, 4
"""Of each method: 35 kills together."""
KILLS_BY_WRITE, WRITES_OF_AN_EPOCH = 8, 250
EVENTS = 1200
"""Steps, writes and renames of a run, about."""


@pytest.fixture(scope="module", autouse=True)
def a_server_that_has_started() -> None:
    process = start(["--version"])
    process.join()
    assert process.exitcode == 0


def arguments(command: str, domains: Path, log: Path, *more: str) -> list[str]:
    return [command, *small_arguments(domains), "-b", "8", "--epochs", "4", "--log", str(log), *more]


def finish(command: list[str]) -> None:
    process = start(command)
    process.join()
    assert process.exitcode == 0


def killed_after(command: list[str], seconds: float) -> int:
    process = start(command)
    process.join(seconds)
    process.kill()
    process.join()
    return process.exitcode


def killed_at_event(command: list[str], events: int) -> int:
    process = start(command, events)
    process.join()
    return process.exitcode


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been(
    domains: Path, source_checkpoint: Path, tmp_path: Path, method: str
) -> None:
    def command(name: str) -> list[str]:
        more = ("-t", "dark", "--checkpoint", str(source_checkpoint), "--method", method)
        return arguments("adapt", domains, tmp_path / name, *more)

    _kill_and_compare(command, tmp_path, random.Random(method), KILLS_BY_TIME, KILLS_BY_EVENT)


@pytest.mark.parametrize("method", ["erm", "cdan"])
def test_the_training_of_a_source_model_continues_too(domains: Path, tmp_path: Path, method: str) -> None:
    def command(name: str) -> list[str]:
        more = ("--method", method, *(("-t", "dark", "-i", "5") if method == "cdan" else ()))
        return arguments("pretrain", domains, tmp_path / name, *more)

    _kill_and_compare(command, tmp_path, random.Random(0), 1, 2)


def test_a_run_that_is_killed_while_it_writes_an_epoch_and_trains_the_next(
    domains: Path, source_checkpoint: Path, tmp_path: Path
) -> None:
    def command(name: str) -> list[str]:
        more = ("-t", "dark", "--checkpoint", str(source_checkpoint), "--method", "ancon", "--save-epochs")
        return arguments("adapt", domains, tmp_path / name, *more, "--save-predictions", "--save-logits")

    finish(command("whole"))
    generator = random.Random(0)
    for _ in range(KILLS_BY_WRITE):
        process = start(command("cut"), writes_until_kill=generator.randrange(1, WRITES_OF_AN_EPOCH))
        process.join()
        assert process.exitcode == -signal.SIGKILL
    finish(command("cut"))
    assert differences(*(outcome(tmp_path / name) for name in ("whole", "cut"))) == []
    assert differences(*(arrays(tmp_path / name) for name in ("whole", "cut"))) == []


def arrays(run: Path) -> dict[str, Any]:
    """What it keeps beside its checkpoints."""
    found = {}
    for path in sorted(run.rglob("*.npz")):
        with np.load(path) as file:
            numbers = {name: torch.from_numpy(file[name]) for name in file.files if file[name].dtype.kind in "if"}
        found[path.relative_to(run).as_posix()] = numbers
    return found


def _kill_and_compare(command, tmp_path: Path, generator: random.Random, by_time: int, by_event: int) -> None:
    started = time.perf_counter()
    finish(command("whole"))
    seconds = time.perf_counter() - started
    expected = outcome(tmp_path / "whole")
    directories = iter(range(100))
    cut = f"cut-{next(directories)}"
    kills = [lambda: killed_after(command(cut), generator.uniform(0, seconds))] * by_time
    kills += [lambda: killed_at_event(command(cut), generator.randrange(1, EVENTS))] * by_event
    generator.shuffle(kills)
    while kills:
        status = kills[-1]()
        assert status in (0, -signal.SIGKILL)
        if status:
            kills.pop()
        else:
            assert differences(expected, outcome(tmp_path / cut)) == []
            cut = f"cut-{next(directories)}"
    finish(command(cut))
    assert differences(expected, outcome(tmp_path / cut)) == []


@pytest.mark.parametrize(("number", "workers"), [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGTERM, 2)])
def test_a_signal_ends_the_step_and_the_run_continues(
    domains: Path, source_checkpoint: Path, tmp_path: Path, number: signal.Signals, workers: int
) -> None:
    def command(name: str) -> list[str]:
        more = ("-t", "dark", "--checkpoint", str(source_checkpoint), "--method", "ancon", "-j", str(workers))
        return arguments("adapt", domains, tmp_path / name, *more)

    finish(command("whole"))
    process = start(command("cut"))
    _wait_for(tmp_path / "cut" / "metrics.jsonl")
    os.kill(process.pid, number)
    process.join()
    assert process.exitcode == 128 + number
    assert not (tmp_path / "cut" / "result.json").exists()
    finish(command("cut"))
    assert differences(outcome(tmp_path / "whole"), outcome(tmp_path / "cut")) == []


def test_ctrl_c_before_the_first_step_ends_with_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(words: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tllib_ancon.cli.main.parse", interrupted)
    assert main(["adapt"]) == 128 + signal.SIGINT


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.is_file():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_another_process_that_writes_there_is_refused_until_it_is_dead(
    domains: Path, source_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("-t", "dark", "--checkpoint", str(source_checkpoint), "--epochs", "1000", "-j", "1")
    command = arguments("adapt", domains, tmp_path / "run", *more)
    first = start(command)
    _wait_for(tmp_path / "run" / "metrics.jsonl")
    assert main(command) == 2
    assert f"is in use: process {first.pid} on " in capsys.readouterr().err
    first.kill()
    first.join()
    third = start(command)
    kept = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])["epoch"]
    deadline = time.monotonic() + 30
    while json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])["epoch"] <= kept:
        assert third.exitcode is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    third.kill()
    third.join()


def test_a_finished_run_says_so(domains: Path, source_checkpoint: Path, tmp_path: Path, capsys) -> None:
    words = arguments("adapt", domains, tmp_path / "run", "-t", "dark", "--checkpoint", str(source_checkpoint))
    words.remove("--quiet")
    assert main(words) == 0
    result = (tmp_path / "run" / "result.json").read_bytes()
    first = capsys.readouterr().out
    assert main(words) == 0
    shown = capsys.readouterr()
    assert f"{tmp_path / 'run'} holds this run already, finished" in shown.err
    assert shown.out == first
    assert (tmp_path / "run" / "result.json").read_bytes() == result


def test_two_runs_of_one_seed_are_identical_with_any_number_of_workers(
    domains: Path, source_checkpoint: Path, tmp_path: Path
) -> None:
    outcomes = []
    for name, workers in (("first", 0), ("second", 0), ("third", 2)):
        more = ("-t", "dark", "--checkpoint", str(source_checkpoint), "-j", str(workers), "--train-resizing", "default")
        finish(arguments("adapt", domains, tmp_path / name, *more, "--image-size", "16", "--override", "--seed", "7"))
        outcomes.append(outcome(tmp_path / name))
    assert differences(outcomes[0], outcomes[1]) == []
    assert differences(outcomes[0], outcomes[2]) == []
    more = ("-t", "dark", "--checkpoint", str(source_checkpoint), "--train-resizing", "default")
    finish(arguments("adapt", domains, tmp_path / "other", *more, "--image-size", "16", "--override", "--seed", "8"))
    assert differences(outcomes[0]["latest.pth"], outcome(tmp_path / "other")["latest.pth"])


@pytest.mark.parametrize("command", ["adapt", "pretrain"])
def test_a_signal_while_the_last_epoch_is_saved_is_not_swallowed(
    domains: Path, source_checkpoint: Path, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ("-t", "dark", "--checkpoint", str(source_checkpoint)) if command == "adapt" else ()
    words = arguments(command, domains, tmp_path / "run", *more)
    save = RunDirectory.save_epoch

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


def test_a_run_refused_at_an_image_starts_with_the_corrected_command(
    domains: Path, source_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(shutil.copytree(domains, tmp_path / "domains"))
    for path in (root / "dark").rglob("*7.png"):
        path.write_bytes(b"no image")
    words = arguments("adapt", root, tmp_path / "run", "-t", "dark", "--checkpoint", str(source_checkpoint))
    assert main(words) == 2
    assert "cannot be decoded" in capsys.readouterr().err
    assert main([*words, "--skip-corrupt"]) == 0
