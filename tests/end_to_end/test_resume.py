"""Runs that are killed, stopped by a signal, cut off or overwritten: they resume with the same numbers."""

import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tests.domains_on_disk import small_arguments
from tests.end_to_end.cutting import counting, cut_in_the_second_epoch
from tests.end_to_end.killable import differences, last_epoch, outcome, start, wait_for, weights
from tllib_ancon.cli.main import main
from tllib_ancon.laboratory import demo
from tllib_ancon.runtime.errors import Interrupted
from tllib_ancon.training.adaptation import Adaptation
from tllib_ancon.training.run import RunDirectory

CROPS = "ancon --train-resizing default --image-size 14 --override"
LENGTH = ("-b", "8", "--epochs", "4")
EVENTS = 80
"""Steps, flushes and renames of a run, about."""


def ended(command: list[str], seconds: float | None = None, **when: int) -> int:
    """The exit status of a command that is killed after so many seconds, or by itself."""
    process = start(command, **when)
    process.join(seconds)
    process.kill()
    process.join()
    return process.exitcode


@pytest.mark.parametrize(
    ("method", "by_time", "by_event"), [("nrc+ancon", 3, 4), (CROPS, 1, 2), ("erm", 1, 2), ("cdan", 1, 2)]
)
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been(
    adapt, domains: Path, tmp_path: Path, method: str, by_time: int, by_event: int
) -> None:
    def command(name: str) -> list[str]:
        if method not in ("erm", "cdan"):
            return adapt(name, *LENGTH, "--method", *method.split())
        own = ["--log", str(tmp_path / name), "--method", method]
        target = ("-t", "dark", "-i", "5") if method == "cdan" else ()
        return ["pretrain", *small_arguments(domains), *LENGTH, *own, *target]

    generator = random.Random(method)
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


IN_WORKERS = ("-b", "8", "-j", "2", "--epochs", "12")


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
        process = start(adapt("cut", *IN_WORKERS), errors=errors)
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
    assert main(adapt("cut", *IN_WORKERS, "-j", "0")) == 0
    assert main(adapt("whole", *IN_WORKERS, "-j", "0")) == 0
    assert differences(*(outcome(tmp_path / name) for name in ("whole", "cut"))) == []


def test_a_lost_worker_is_one_line_that_says_what_to_do(adapt, tmp_path: Path) -> None:
    process = start(adapt("run", *IN_WORKERS), errors=tmp_path / "errors.txt")
    wait_for(lambda: last_epoch(tmp_path / "run") > 0)
    workers_of(process.pid)[-1].kill()
    process.join(240)
    assert process.exitcode == 2
    (line,) = (tmp_path / "errors.txt").read_text().splitlines()
    assert line.startswith("tllib-ancon: error: a process that loads images ended without a word (")
    assert line.endswith("; where memory is short, pass fewer --workers or a smaller --batch-size")
    assert main(adapt("run", *IN_WORKERS, "-j", "0")) == 0


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


def test_what_a_command_with_overwrite_began_is_continued(adapt, tmp_path, monkeypatch) -> None:
    words = adapt("run", "--epochs", "3")
    assert main(adapt("whole", "--epochs", "3")) == 0
    assert main(words) == 0
    cut_in_the_second_epoch(monkeypatch, [*words, "--overwrite"])
    epochs = counting(monkeypatch)
    assert main([*words, "--overwrite"]) == 0
    assert epochs == [2, 3]
    assert differences(*(weights(tmp_path / run) for run in ("whole", "run"))) == []
    assert main([*words, "--overwrite"]) == 0
    assert epochs == [2, 3, 1, 2, 3]


def test_what_began_otherwise_is_not_and_without_overwrite_it_is_continued_too(adapt, tmp_path, monkeypatch) -> None:
    epochs = counting(monkeypatch)
    cut_in_the_second_epoch(monkeypatch, adapt())
    cut_in_the_second_epoch(monkeypatch, adapt("run", "--overwrite"))
    assert epochs == [1, 1]
    assert main(adapt()) == 0
    assert epochs == [1, 1, 2]
    cut_in_the_second_epoch(monkeypatch, adapt("run", "--overwrite", "--lr", "0.02"))
    assert epochs == [1, 1, 2, 1]
    state = tmp_path / "run" / "checkpoints" / "state.pth"
    state.write_bytes(state.read_bytes()[:-5])
    assert main(adapt("run", "--overwrite", "--lr", "0.02")) == 0
    assert epochs == [1, 1, 2, 1, 1, 2]


def test_a_demo_with_overwrite_makes_every_run_again(tmp_path: Path, monkeypatch) -> None:
    made: list[bool] = []

    def run_all(self: demo.Demo, say: object) -> None:
        made[:] = [not RunDirectory(self.out / run.name).finished for run in self.runs()]
        raise Interrupted(signal.SIGINT)

    monkeypatch.setattr(demo.Demo, "run", run_all)
    monkeypatch.setattr("tllib_ancon.data.demo.write_demo_domains", lambda root: None)
    for run in demo.Demo(tmp_path, (0,), 1, 1, 1, ("",)).runs():
        (tmp_path / run.name).mkdir(parents=True)
        (tmp_path / run.name / "result.json").write_text("{}")
    words = ["demo", "--out", str(tmp_path), "--seeds", "0"]
    for more, anew in (([], False), (["--overwrite"], True)):
        assert main([*words, *more]) == 128 + signal.SIGINT
        assert set(made) == {anew}


@pytest.mark.parametrize("name", ["checkpoints/best.pth", ""])
def test_a_run_does_not_write_over_its_start(adapt, tmp_path, refused, name: str) -> None:
    assert main(adapt()) == 0
    kept, start = (tmp_path / "run" / "checkpoints" / "best.pth").read_bytes(), tmp_path / "run" / name
    for more in ((), ("--overwrite",)):
        shown = refused(adapt("run", *more, checkpoint=start))
        assert "best.pth lies where this run writes its own; choose another --log" in shown
        assert (tmp_path / "run" / "checkpoints" / "best.pth").read_bytes() == kept
    assert main(adapt("next", checkpoint=start)) == 0


def test_threads_are_recorded_and_others_are_said(adapt, tmp_path: Path, monkeypatch, capsys) -> None:
    before, run, seen = torch.get_num_threads(), tmp_path / "run", []
    words = [word for word in adapt() if word != "--quiet"]
    cut_in_the_second_epoch(monkeypatch, words)
    assert json.loads((run / "config.json").read_text())["threads"] == before
    capsys.readouterr()
    train = Adaptation._train_epoch
    monkeypatch.setattr(Adaptation, "_train_epoch", lambda *args: seen.append(torch.get_num_threads()) or train(*args))
    assert main([*words, "--threads", str(before + 1)]) == 0
    assert seen == [before + 1]
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "warning" in line)
    assert f"warning: this run began with {before} threads of PyTorch and continues with {before + 1}" in line
    assert torch.get_num_threads() == before
    assert json.loads((run / "config.json").read_text())["threads"] == before
