"""A run directory survives kills, full disks and damage; other settings and other programs' files are one line."""

import errno
import os
import pickle
from contextlib import closing

import pytest
import torch

from tests.support.bomb import Bomb
from tests.support.json_files import read_json_lines
from tests.support.refusals import one_line
from tllib_ancon.runs.directory import BEST, LATEST, STATE, RunDirectory
from tllib_ancon.runtime.errors import UserError

CONFIG = {"command": "adapt", "lr": 0.01, "classes": ["red", "green"], "workers": 2, "overwrite": False}
EPOCHS = 3
SELECTED = (1, 3)
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
FINISHED = pytest.mark.parametrize("finished", [True, False])


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the program can catch it."""


def weights(epoch):
    return {"weight": torch.full((3,), float(epoch))}


def train(path, config=CONFIG, epochs=EPOCHS + 1, **options):
    """A run whose model is its epoch. It continues what is there, and is cut off after so many epochs."""
    with closing(RunDirectory(path)) as run:
        run.begin({**config, **options}, **options)
        if run.finished:
            return
        snapshot, stored = run.resume()
        done = len(stored)
        if done:
            assert snapshot["parts"]["model"]["weight"][0] == done - 1
            assert load(path, LATEST)["weight"][0] == done - 1
            assert read_json_lines(path / "metrics.jsonl") == stored
        for epoch in range(done, epochs):
            metrics = [{"epoch": number} for number in range(epoch + 1)]
            run.save_epoch({"parts": {"model": weights(epoch)}}, metrics, epoch in SELECTED)
        if epochs > EPOCHS:
            run.finish({"last": {"epoch": EPOCHS}})


def load(path, name):
    return torch.load(path / "checkpoints" / name, weights_only=True)


def assert_whole(path):
    assert read_json_lines(path / "metrics.jsonl") == [{"epoch": epoch} for epoch in range(EPOCHS + 1)]
    assert load(path, LATEST)["weight"][0] == EPOCHS
    assert load(path, BEST)["weight"][0] == SELECTED[-1]
    assert RunDirectory(path).result() == {"last": {"epoch": EPOCHS}}
    assert not list(path.rglob("*.partial"))
    assert not (path / STATE).exists()


def failing_at(event, patch, error):
    """Raise at one of the flushes and renames to come; gives how many came."""
    events = [0]

    def counted(function):
        def call(*arguments):
            events[0] += 1
            if events[0] == event:
                raise error
            return function(*arguments)

        return call

    patch.setattr(os, "fsync", counted(lambda descriptor: None))
    patch.setattr(os, "replace", counted(os.replace))
    return events


UNWRITTEN = (
    r"could not be written \(.* No space left on device\); its content before stays. Make room or check the folder's "
    "permissions, then give the same command again$"
)


@pytest.mark.parametrize(("error", "raised", "said"), [(Killed(), Killed, "^$"), (FULL, UserError, UNWRITTEN)])
def test_a_run_that_fails_at_any_flush_or_rename_continues_and_ends_as_if_it_had_not(tmp_path, error, raised, said):
    with pytest.MonkeyPatch.context() as patch:
        events = failing_at(0, patch, error)
        train(tmp_path / "whole")
    assert events[0] > 3 * EPOCHS
    for event in range(1, events[0] + 1):
        path = tmp_path / str(event)
        with pytest.MonkeyPatch.context() as patch:
            failing_at(event, patch, error)
            with pytest.raises(raised, match=said):
                train(path)
        train(path)
        assert_whole(path)


OTHER_SETTINGS = (
    r"^run directory .* holds a run with other settings \(lr: 0.01 there, 0.1 now; classes: \['red', 'green'\] there, "
    r"\['red', 'blue'\] now\); choose another `log`, or pass `overwrite=True` to start the run again$"
)


@FINISHED
def test_other_settings_are_one_line_with_their_difference(tmp_path, finished):
    train(tmp_path, epochs=EPOCHS + 1 if finished else 2)
    other = {**CONFIG, "lr": 0.1, "classes": ["red", "blue"], "workers": 0}
    with one_line(OTHER_SETTINGS):
        RunDirectory(tmp_path).begin(other)
    train(tmp_path, {**CONFIG, "workers": 0})
    assert_whole(tmp_path)


@FINISHED
def test_overwrite_starts_anew_and_leaves_other_files_alone(tmp_path, finished):
    train(tmp_path, epochs=EPOCHS + 1 if finished else 2)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "predictions.npz").write_bytes(b"old")
    train(tmp_path, {**CONFIG, "lr": 1.0}, epochs=2, overwrite=True)
    assert not (tmp_path / "predictions.npz").exists()
    train(tmp_path, {**CONFIG, "lr": 1.0})
    assert RunDirectory(tmp_path).config()["lr"] == 1.0
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert_whole(tmp_path)


@pytest.mark.parametrize(("config", "schema"), [('{"a": 1}', None), ('{"schema": 0, "lr": 0.01}', 0)])
def test_settings_of_another_program_or_version_are_one_line_and_stay(tmp_path, config, schema):
    (tmp_path / "config.json").write_text(config)
    with one_line(
        f"is no run directory of this version of tllib_ancon: the schema in its config.json is {schema}, here 1; "
        "choose another "
        "folder, as `log` a new one, or use the version that wrote it$"
    ):
        train(tmp_path)
    assert (tmp_path / "config.json").read_text() == config


@pytest.mark.parametrize("content", ["code", "shorter", "other entries"])
def test_a_state_that_is_damaged_or_would_run_code_is_one_line(tmp_path, content):
    train(tmp_path, epochs=2)
    bomb = Bomb(tmp_path / "victim")
    state = tmp_path / STATE
    if content == "code":
        state.write_bytes(pickle.dumps(bomb))
    elif content == "shorter":
        state.write_bytes(state.read_bytes()[:-100])
    else:
        torch.save({"a": 1}, state)
    with one_line(r"state\.pth cannot be read as the state of a run .*overwrite=True"):
        train(tmp_path)
    assert not bomb.victim.exists()


@pytest.mark.parametrize("name", [".lock", "config.json", "checkpoints", "checkpoints/best.pth"])
def test_no_link_in_a_run_directory_is_followed(name, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    path = tmp_path / "run"
    (path / name).parent.mkdir(parents=True)
    (path / name).symlink_to(outside if name == "checkpoints" else outside / "file")
    with one_line("is a link, and nothing in a run directory is one; put what it leads to there$"):
        train(path)
    assert [file.name for file in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "mine"
