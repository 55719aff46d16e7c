"""A run's folder survives kills, full disks and damage, and what others plant there is refused."""

import errno
import os
import resource
import threading
from contextlib import closing
from pathlib import Path

import pytest
import torch

from tests.json_files import read_json_lines
from tests.support.refusals import one_line
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.training import files
from tllib_ancon.training.run import BEST, LATEST, STATE, RunDirectory

CONFIG = {"command": "adapt", "lr": 0.01, "classes": ["red", "green"], "workers": 2}
EPOCHS = 4
SELECTED = (1, 3)
EVENTS = 3 * (2 + 3 * (EPOCHS + 1)) + 2 * len(SELECTED)
"""Flushes and renames of a run: three for each file that it writes, and two for each link."""
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
NO_ROOM = "could not be written ([Errno 28] No space left on device)"
FINISHED = pytest.mark.parametrize("finished", [True, False])


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the program can catch it."""


def weights(epoch):
    return {"weight": torch.full((3,), float(epoch))}


def save(run, epoch):
    metrics = [{"epoch": number} for number in range(epoch + 1)]
    run.save_epoch({"parts": {"model": weights(epoch)}}, metrics, epoch in SELECTED)


def train(path, config=CONFIG, epochs=None, **options):
    """A run whose model is its epoch; it continues what is there, and is cut off after so many epochs."""
    with closing(RunDirectory(path)) as run:
        run.begin(config, **options)
        if run.finished:
            return
        kept = run.resume()
        done = 0
        if kept is not None:
            done = len(kept[1])
            assert_agreement(path, done)
            assert torch.equal(kept[0]["parts"]["model"]["weight"], weights(done - 1)["weight"])
        for epoch in range(done, EPOCHS + 1 if epochs is None else epochs):
            save(run, epoch)
        if epochs is None:
            run.finish({"last": {"epoch": EPOCHS}})


def cut_or_whole(path, finished):
    train(path, epochs=None if finished else 3)


def assert_agreement(path, epochs):
    """``latest.pth``, ``best.pth`` and ``metrics.jsonl`` are those of so many epochs."""
    best = max((epoch for epoch in SELECTED if epoch < epochs), default=None)
    lines = read_json_lines(path / "metrics.jsonl")
    assert lines == [{"epoch": epoch} for epoch in range(epochs)]
    assert load(path, LATEST)["weight"][0] == epochs - 1
    assert best is None or load(path, BEST)["weight"][0] == best


def load(path, name):
    return torch.load(path / "checkpoints" / name, weights_only=True)


def assert_whole(path):
    assert_agreement(path, EPOCHS + 1)
    assert RunDirectory(path).result()["last"] == {"epoch": EPOCHS}
    assert not list(path.rglob("*.partial"))
    assert not (path / STATE).exists()


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(files.os, "fsync", lambda descriptor: None)


def after(events, monkeypatch, error):
    """Raise at one of the flushes and renames to come; gives how many are left until then."""
    left = [events]

    def counted(function):
        def call(*args):
            left[0] -= 1
            if left[0] == 0:
                raise error
            return function(*args)

        return call

    for name in ("fsync", "replace"):
        monkeypatch.setattr(files.os, name, counted(getattr(os, name)))
    return lambda: left[0]


def test_every_flush_and_rename_is_counted(tmp_path, monkeypatch):
    left = after(2 * EVENTS, monkeypatch, Killed())
    train(tmp_path)
    assert left() == EVENTS


@pytest.mark.parametrize(("error", "raised", "message"), [(Killed(), Killed, ""), (FULL, UserError, NO_ROOM)])
def test_a_run_that_fails_at_any_flush_or_rename_continues_and_its_files_agree(tmp_path, error, raised, message):
    for events in range(1, EVENTS + 1, 3 if message else 1):
        path = tmp_path / str(events)
        with pytest.MonkeyPatch.context() as patch:
            after(events, patch, error)
            with pytest.raises(raised) as caught:
                train(path)
        assert message in str(caught.value)
        assert not message or not list(path.rglob("*.partial"))
        train(path)
        assert_whole(path)


@pytest.mark.parametrize("room", [100, 700, 1500])
def test_a_write_without_room_is_an_error_and_the_epoch_before_is_kept(tmp_path, room):
    train(tmp_path, epochs=3)
    before = content(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))  # no file may grow beyond
    try:
        with one_line(r"could not be written \(.*File too large"):
            train(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert content(tmp_path) == before
    train(tmp_path)
    assert_whole(tmp_path)


def test_files_and_their_folder_reach_the_disk_before_and_after_the_rename(tmp_path, monkeypatch):
    calls = []
    replace = os.replace
    name = lambda descriptor: Path(os.readlink(f"/proc/self/fd/{descriptor}")).name  # noqa: E731
    monkeypatch.setattr(files.os, "fsync", lambda descriptor: calls.append(f"fsync {name(descriptor)}"))

    def recorded(path, target):
        calls.append(f"replace {target.name}")
        replace(path, target)

    monkeypatch.setattr(files.os, "replace", recorded)
    files.write_whole(tmp_path / "file", lambda file: file.write(b"content"))
    assert calls == ["fsync file.partial", "replace file", f"fsync {tmp_path.name}"]


@FINISHED
def test_other_settings_are_refused_with_their_difference(tmp_path, finished):
    cut_or_whole(tmp_path, finished)
    other = {**CONFIG, "lr": 0.1, "classes": ["red", "blue"], "workers": 0, "deterministic": True}
    with one_line("overwrite=True") as refusal:
        RunDirectory(tmp_path).begin(other)
    text = str(refusal.value)
    assert "lr: 0.01 there, 0.1 now; classes[1]: 'green' there, 'blue' now; deterministic: None there, True now" in text
    assert "workers" not in text


def test_an_epoch_is_written_while_the_caller_changes_its_weights_and_what_follows_waits(tmp_path, monkeypatch):
    run = RunDirectory(tmp_path)
    go = threading.Event()
    replace = os.replace
    found = []
    run.begin(CONFIG)
    monkeypatch.setattr(files.os, "replace", lambda *paths: (go.wait(), replace(*paths)))
    model = weights(1)
    metrics = [{"epoch": 0}, {"epoch": 1}]
    run.save_epoch({"parts": {"model": model}}, metrics, True)
    run.save_source()
    run.then(lambda: found.extend(path.name for path in tmp_path.rglob("*.*")))
    model["weight"].fill_(2)
    metrics.append({"epoch": 2})
    assert not (tmp_path / STATE).exists()
    assert found == []
    go.set()
    run.save_epoch({"parts": {"model": model}}, metrics, False)
    assert {"state.pth", "best.pth", "latest.pth", "metrics.jsonl"} <= set(found)
    stored = [run.load(name) for name in (LATEST, BEST, "source.pth")]
    assert [state["weight"][0] for state in stored] == [2, 1, 1]
    run.close()


@pytest.mark.parametrize("call", ["wait", "save_epoch", "finish", "load"])
def test_an_error_of_the_writer_is_that_of_the_next_call(tmp_path, monkeypatch, call):
    epoch = ({"parts": {"model": weights(0)}}, [{"epoch": 0}], True)
    arguments = {"save_epoch": epoch, "finish": [{}], "load": [LATEST]}
    run = RunDirectory(tmp_path)
    run.begin(CONFIG)
    with monkeypatch.context() as patch:
        after(1, patch, FULL)
        run.save_epoch(*epoch)
        run.save_source()
        with one_line("No space left on device"):
            getattr(run, call)(*arguments.get(call, []))
    run.close()
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == [".lock", "config.json"]


@FINISHED
def test_overwrite_starts_anew_and_leaves_other_files_alone(tmp_path, finished):
    cut_or_whole(tmp_path, finished)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "predictions.npz").write_bytes(b"old")
    (tmp_path / "config.json").write_text("{")
    train(tmp_path, {**CONFIG, "lr": 1.0}, overwrite=True)
    assert RunDirectory(tmp_path).config()["lr"] == 1.0
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "predictions.npz").exists()
    assert_whole(tmp_path)


REFUSED = {
    (True, "checkpoints/best.pth"): "best.pth is .*partial copy",
    (True, "checkpoints/latest.pth"): "latest.pth is .*partial copy",
    (True, "metrics.jsonl"): "metrics.jsonl is .*partial copy",
    (False, "checkpoints/best.pth"): "best.pth is .*partial copy",
    (False, "checkpoints/state.pth"): "partial copy|damaged: its checksum is wrong",
}


@pytest.mark.parametrize("damage", ["missing", "shorter", "other bytes"])
@pytest.mark.parametrize(("finished", "name"), [*REFUSED, (False, "checkpoints/latest.pth"), (False, "metrics.jsonl")])
def test_a_partial_copy_is_refused_and_what_follows_from_the_state_is_written_again(tmp_path, finished, name, damage):
    with closing(RunDirectory(tmp_path)) as run:
        run.begin(CONFIG)
        for epoch in range(3):
            save(run, epoch)
        run.save_source()
    if finished:
        train(tmp_path)
    path = tmp_path / name
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "shorter":
        path.write_bytes(whole[:-5])
    else:
        path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    if (finished, name) in REFUSED:
        with one_line(REFUSED[finished, name]):
            train(tmp_path)
    else:
        train(tmp_path)
        assert_whole(tmp_path)


def test_a_run_that_kept_no_epoch_leaves_its_folder_to_other_settings(tmp_path):
    RunDirectory(tmp_path).begin({**CONFIG, "lr": 1.0})
    train(tmp_path)
    assert RunDirectory(tmp_path).config()["lr"] == CONFIG["lr"]
    assert_whole(tmp_path)


def test_a_folder_with_checkpoints_of_another_program_is_refused(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    torch.save(weights(0), tmp_path / "checkpoints" / "best.pth")
    with one_line(r"holds checkpoints/best.pth but no config.json.*overwrite"):
        RunDirectory(tmp_path).begin(CONFIG)
    assert load(tmp_path, BEST)["weight"][0] == 0


NESTED = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize("text", ["{", "{}", "[]", "3", NESTED], ids=["cut", "empty", "list", "number", "nested"])
@pytest.mark.parametrize("name", ["config.json", "result.json"])
def test_a_damaged_configuration_or_result_is_refused(tmp_path, name, text):
    train(tmp_path)
    (tmp_path / name).write_text(text)
    with one_line(f"{name}|holds a run with other settings"):
        RunDirectory(tmp_path).begin(CONFIG)
