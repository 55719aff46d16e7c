from __future__ import annotations

import errno
import json
import os
import resource
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from tllib_ancon.errors import UserError
from tllib_ancon.training import files
from tllib_ancon.training.run_directory import BEST, LATEST, STATE, RunDirectory

CONFIG = {"command": "adapt", "lr": 0.01, "classes": ["red", "green"], "workers": 2}
EPOCHS, SELECTED = 4, (1, 3)


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the program can catch it."""


def weights(epoch: int) -> dict[str, torch.Tensor]:
    return {"weight": torch.full((3,), float(epoch))}


def train(path: Path, config: dict[str, Any] = CONFIG, **options: bool) -> RunDirectory:
    """A run whose model is its epoch; it continues what is there."""
    with closing(RunDirectory(path)) as run:
        run.begin(config, **options)
        if run.finished:
            return run
        kept = run.resume()
        metrics = [] if kept is None else kept[1]
        if kept is not None:
            assert_agreement(path, metrics)
            assert torch.equal(kept[0]["parts"]["model"]["weight"], weights(len(metrics) - 1)["weight"])
        for epoch in range(len(metrics), EPOCHS + 1):
            metrics = [*metrics, {"epoch": epoch}]
            run.save_epoch({"parts": {"model": weights(epoch)}}, metrics, epoch in SELECTED)
        run.finish({"last": metrics[-1]})
        return run


def assert_agreement(path: Path, metrics: list[dict[str, Any]]) -> None:
    """``latest.pth``, ``best.pth`` and ``metrics.jsonl`` say what ``metrics`` says."""
    last = metrics[-1]["epoch"]
    best = max((epoch for epoch in SELECTED if epoch <= last), default=None)
    assert [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()] == metrics
    assert load(path, LATEST)["weight"][0] == last
    if best is not None:
        assert load(path, BEST)["weight"][0] == best


def load(path: Path, name: str) -> Any:
    return torch.load(path / "checkpoints" / name, weights_only=True)


def assert_whole(path: Path) -> None:
    assert_agreement(path, [{"epoch": epoch} for epoch in range(EPOCHS + 1)])
    assert RunDirectory(path).result()["last"] == {"epoch": EPOCHS}
    assert not list(path.rglob("*.partial"))
    assert not (path / "checkpoints" / STATE).exists()


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.os, "fsync", lambda descriptor: None)


OPERATIONS = ("fsync", "replace")


def after(events: int, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Raise at one of the flushes and renames to come."""
    left = [events]

    def counted(function: Any) -> Any:
        def call(*args: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise error
            return function(*args)

        return call

    for name in OPERATIONS:
        monkeypatch.setattr(files.os, name, counted(getattr(os, name)))


def events_of_a_run(path: Path) -> int:
    with pytest.MonkeyPatch.context() as patch:
        counter = iter(range(10_000))
        for name in OPERATIONS:
            function = getattr(os, name)
            patch.setattr(files.os, name, lambda *args, function=function: [next(counter), function(*args)][1])
        train(path)
        return next(counter)


def test_a_run_killed_before_any_flush_or_rename_continues_and_its_files_agree(tmp_path: Path) -> None:
    total = events_of_a_run(tmp_path / "whole")
    assert_whole(tmp_path / "whole")
    assert total == 3 * (2 + 3 * (EPOCHS + 1) + len(SELECTED))
    for events in range(1, total + 1):
        path = tmp_path / str(events)
        with pytest.MonkeyPatch.context() as patch:
            after(events, patch, Killed())
            with pytest.raises(Killed):
                train(path)
        train(path)
        assert_whole(path)


def test_a_disk_that_fails_is_an_error_and_the_epoch_before_is_kept(tmp_path: Path) -> None:
    for events in range(1, events_of_a_run(tmp_path / "whole") + 1, 3):
        path = tmp_path / str(events)
        with pytest.MonkeyPatch.context() as patch:
            after(events, patch, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
            with pytest.raises(UserError, match=r"could not be written \(.*No space left on device"):
                train(path)
        assert not list(path.rglob("*.partial"))
        train(path)
        assert_whole(path)


@pytest.mark.parametrize("room", [100, 400, 700, 1200, 1500])
def test_a_write_without_room_is_an_error_and_the_epoch_before_is_kept(tmp_path: Path, room: int) -> None:
    cut_or_whole(tmp_path, finished=False)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))  # no file may grow beyond
    try:
        with pytest.raises(UserError, match=r"could not be written \(.*File too large"):
            train(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path: path.read_bytes() for path in before} == before
    train(tmp_path)
    assert_whole(tmp_path)


def test_files_and_their_folder_reach_the_disk_before_and_after_the_rename(tmp_path: Path, monkeypatch) -> None:
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(files.os, "fsync", lambda fd: (calls.append(f"fsync {_name(fd)}"), fsync(fd)))
    monkeypatch.setattr(files.os, "replace", lambda a, b: (calls.append(f"replace {b.name}"), replace(a, b)))
    files.write_whole(tmp_path / "file", lambda file: file.write(b"content"))
    assert calls == ["fsync file.partial", "replace file", f"fsync {tmp_path.name}"]


def _name(descriptor: int) -> str:
    return Path(os.readlink(f"/proc/self/fd/{descriptor}")).name


def test_a_finished_run_is_said_to_be_finished_and_left_alone(tmp_path: Path) -> None:
    train(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    run = RunDirectory(tmp_path)
    run.begin(CONFIG)
    assert run.finished
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("finished", [True, False])
def test_other_settings_are_refused_with_their_difference(tmp_path: Path, finished: bool) -> None:
    cut_or_whole(tmp_path, finished)
    other = {**CONFIG, "lr": 0.1, "classes": ["red", "blue"], "workers": 0, "deterministic": True}
    with pytest.raises(UserError) as refusal:
        RunDirectory(tmp_path).begin(other)
    text = str(refusal.value)
    assert "lr: 0.01 there, 0.1 now; classes[1]: 'green' there, 'blue' now; deterministic: None there, True now" in text
    assert "workers" not in text
    assert "overwrite=True" in text


def cut_or_whole(path: Path, finished: bool, epochs: int = 3) -> None:
    """A run of ours, cut off after some epochs unless it is to be finished."""
    if finished:
        train(path)
        return
    with closing(RunDirectory(path)) as run:
        run.begin(CONFIG)
        for epoch in range(epochs):
            metrics = [{"epoch": number} for number in range(epoch + 1)]
            run.save_epoch({"parts": {"model": weights(epoch)}}, metrics, epoch in SELECTED)


class HeldBack:
    """Lets the writer write no file until :meth:`set`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.go = threading.Event()
        replace = os.replace
        monkeypatch.setattr(files.os, "replace", lambda *paths: (self.go.wait(10), replace(*paths)))


def test_an_epoch_is_written_while_the_caller_changes_its_weights(tmp_path: Path, monkeypatch) -> None:
    run = RunDirectory(tmp_path)
    run.begin(CONFIG)
    held_back = HeldBack(monkeypatch)
    model, metrics = weights(1), [{"epoch": 0}, {"epoch": 1}]
    run.save_epoch({"parts": {"model": model}}, metrics, True)
    run.keep_epoch(1)
    model["weight"].fill_(2)
    metrics.append({"epoch": 2})
    assert not (tmp_path / "checkpoints" / STATE).exists()
    held_back.go.set()
    run.save_epoch({"parts": {"model": model}}, metrics, False)
    assert run.load(LATEST)["weight"][0] == 2
    assert run.load(BEST)["weight"][0] == 1
    assert run.load("epoch-001.pth")["weight"][0] == 1
    run.close()


def test_what_is_written_after_an_epoch_waits_for_its_state(tmp_path: Path, monkeypatch) -> None:
    run = RunDirectory(tmp_path)
    run.begin(CONFIG)
    held_back, found = HeldBack(monkeypatch), []
    run.save_epoch({"parts": {"model": weights(0)}}, [{"epoch": 0}], True)
    run.then(lambda: found.extend(path.name for path in sorted(tmp_path.rglob("*.*"))))
    assert found == []
    held_back.go.set()
    run.wait()
    assert {"state.pth", "best.pth", "latest.pth", "metrics.jsonl"} <= set(found)
    run.close()


@pytest.mark.parametrize("call", ["wait", "last_good", "save_epoch", "finish", "load"])
def test_an_error_of_the_writer_is_that_of_the_next_call(tmp_path: Path, monkeypatch, call: str) -> None:
    arguments: dict[str, Any] = {
        "last_good": [0],
        "save_epoch": [{"parts": {"model": weights(1)}}, [{"epoch": 0}, {"epoch": 1}], True],
        "finish": [{}],
        "load": [LATEST],
    }
    run = RunDirectory(tmp_path)
    run.begin(CONFIG)
    with monkeypatch.context() as patch:
        after(1, patch, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        run.save_epoch({"parts": {"model": weights(0)}}, [{"epoch": 0}], True)
        run.keep_epoch(0)
        with pytest.raises(UserError, match="No space left on device"):
            getattr(run, call)(*arguments.get(call, []))
    run.close()
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == [".lock", "config.json"]


def test_a_closed_directory_is_free_for_another(tmp_path: Path) -> None:
    cut_or_whole(tmp_path, finished=False)
    assert_agreement(tmp_path, [{"epoch": epoch} for epoch in range(3)])
    RunDirectory(tmp_path).begin(CONFIG)


@pytest.mark.parametrize("finished", [True, False])
def test_overwrite_starts_anew_and_leaves_other_files_alone(tmp_path: Path, finished: bool) -> None:
    cut_or_whole(tmp_path, finished)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "config.json").write_text("{")
    train(tmp_path, {**CONFIG, "lr": 1.0}, overwrite=True)
    assert RunDirectory(tmp_path).config()["lr"] == 1.0
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert_whole(tmp_path)


@pytest.mark.parametrize("name", ["checkpoints/best.pth", "checkpoints/latest.pth", "metrics.jsonl"])
@pytest.mark.parametrize("damage", ["missing", "shorter", "other bytes"])
def test_a_partial_copy_of_a_finished_run_is_refused(tmp_path: Path, name: str, damage: str) -> None:
    train(tmp_path)
    break_file(tmp_path / name, damage)
    with pytest.raises(UserError, match=f"{name} is .*partial copy"):
        RunDirectory(tmp_path).begin(CONFIG)


def break_file(path: Path, damage: str) -> None:
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "shorter":
        path.write_bytes(content[:-5])
    else:
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:])


@pytest.mark.parametrize("damage", ["missing", "shorter", "other bytes"])
@pytest.mark.parametrize("name", ["best.pth", "state.pth"])
def test_a_partial_copy_of_a_cut_run_is_refused(tmp_path: Path, name: str, damage: str) -> None:
    cut_or_whole(tmp_path, finished=False)
    break_file(tmp_path / "checkpoints" / name, damage)
    with pytest.raises(UserError, match=r"partial copy|damaged: its checksum is wrong"):
        train(tmp_path)


@pytest.mark.parametrize("damage", ["missing", "shorter"])
@pytest.mark.parametrize("name", ["checkpoints/latest.pth", "metrics.jsonl"])
def test_what_follows_from_the_state_is_written_again(tmp_path: Path, name: str, damage: str) -> None:
    cut_or_whole(tmp_path, finished=False)
    break_file(tmp_path / name, damage)
    train(tmp_path)
    assert_whole(tmp_path)


def test_a_run_that_kept_no_epoch_leaves_its_folder_to_other_settings(tmp_path: Path) -> None:
    RunDirectory(tmp_path).begin({**CONFIG, "lr": 1.0})
    train(tmp_path)
    assert RunDirectory(tmp_path).config()["lr"] == CONFIG["lr"]
    assert_whole(tmp_path)


def test_a_checkpoint_of_an_epoch_belongs_to_the_finished_run(tmp_path: Path) -> None:
    cut_or_whole(tmp_path, finished=False)
    run = RunDirectory(tmp_path)
    run.begin(CONFIG)
    run.resume()
    run.keep_epoch(2)
    run.finish({})
    run.epoch_checkpoint(2).write_bytes(b"another")
    with pytest.raises(UserError, match=r"epoch-002\.pth is not the file"):
        RunDirectory(tmp_path).begin(CONFIG)


def test_a_folder_with_checkpoints_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    torch.save(weights(0), tmp_path / "checkpoints" / "best.pth")
    with pytest.raises(UserError, match=r"holds checkpoints/best.pth but no config.json.*overwrite"):
        RunDirectory(tmp_path).begin(CONFIG)
    assert load(tmp_path, BEST)["weight"][0] == 0


NESTED = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize("content", ["{", "[]", "3", NESTED], ids=["cut", "list", "number", "nested"])
def test_a_damaged_configuration_is_refused(tmp_path: Path, content: str) -> None:
    cut_or_whole(tmp_path, finished=False)
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=r"config\.json .*overwrite"):
        RunDirectory(tmp_path).begin(CONFIG)


@pytest.mark.parametrize("content", ["[]", "{}", '{"sha256": null}', '{"sha256": {}}', "3"])
def test_a_result_of_another_program_is_refused(tmp_path: Path, content: str) -> None:
    train(tmp_path)
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(UserError, match=r"result\.json holds no result of a run.*overwrite"):
        RunDirectory(tmp_path).begin(CONFIG)


@pytest.mark.parametrize("content", ["{", NESTED], ids=["cut", "nested"])
def test_a_damaged_result_is_refused(tmp_path: Path, content: str) -> None:
    train(tmp_path)
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(UserError, match=r"result\.json is not valid JSON"):
        RunDirectory(tmp_path).begin(CONFIG)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        RunDirectory(tmp_path / "file" / "run").begin(CONFIG)
