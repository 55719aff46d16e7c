"""Runs that are killed, stopped by a signal, cut off or overwritten: they resume with the same numbers."""

import os
import signal

import psutil
import pytest

from tests.support.cutting import cut_in_the_second_epoch
from tests.support.domains_on_disk import small_arguments
from tests.support.killable import differences, last_epoch, outcome, start, wait_for
from tllib_ancon import methods
from tllib_ancon.cli.main import main

SOURCE_MODELS = {"erm": (), "cdan": ("-t", "dark", "-i", "5"), "mdd": ("-t", "dark", "-i", "4")}


@pytest.fixture
def training(adapt, domains, tmp_path):
    """The words that adapt by a method, or that train a source model by it, with its options."""

    def words(name, method, *more):
        if method not in SOURCE_MODELS:
            return adapt(name, "--method", *method.split(), *more)
        log = ["--log", str(tmp_path / name)]
        return ["pretrain", *small_arguments(domains), *log, "--method", method, *SOURCE_MODELS[method], *more]

    return words


def same(tmp_path):
    """Whether all files of both runs are equal by the bit, but for their speed."""
    return differences(outcome(tmp_path / "whole"), outcome(tmp_path / "cut")) == []


# Killed


KILLS = (9, 30)
"""Steps, flushes and renames until a kill: in the first epoch, and in the process after it later, at a write."""


@pytest.mark.parametrize("method", ["nrc+ancon", "erm", "cdan"])
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been(training, tmp_path, method):
    """``test_run_directory.py`` kills at every flush and rename."""
    words = ("-b", "8", "--epochs", "3")
    for events in KILLS:
        process = start(training("cut", method, *words), events_until_kill=events)
        process.join()
        assert process.exitcode == -signal.SIGKILL
    for name in ("cut", "whole"):
        assert main(training(name, method, *words)) == 0
    assert same(tmp_path)


ENDLESS = ("-b", "8", "--epochs", "100000")


def assert_resumes(command, run):
    """The command adds an epoch to those of the run."""
    before = last_epoch(run)
    process = start(command)
    wait_for(lambda: last_epoch(run) > before or process.exitcode is not None)
    assert process.exitcode is None
    process.kill()
    process.join()


def test_another_process_that_writes_there_is_refused_until_it_is_dead(adapt, tmp_path, refused):
    command = adapt("run", *ENDLESS, "-j", "1")
    first = start(command)
    wait_for(lambda: last_epoch(tmp_path / "run") >= 0)
    assert f"is in use: process {first.pid} on " in refused(command)
    first.kill()
    first.join()
    assert_resumes(command, tmp_path / "run")


# Stopped by a signal


@pytest.mark.parametrize(("number", "send"), [(signal.SIGINT, os.killpg), (signal.SIGTERM, os.kill)])
def test_a_signal_to_all_processes_of_a_run_or_to_the_first_is_one_line_and_the_run_continues(
    adapt, tmp_path, number, send
):
    errors = tmp_path / "errors.txt"
    words = ("-b", "8", "--epochs", "12")
    process = start(adapt("cut", *words, "-j", "2"), errors=errors)
    wait_for(lambda: last_epoch(tmp_path / "cut") >= 1)
    workers = psutil.Process(process.pid).children()
    send(process.pid, number)
    process.join()
    psutil.wait_procs(workers)  # none is left
    assert process.exitcode == 128 + number, errors.read_text()
    (line,) = errors.read_text().splitlines()
    assert line.startswith(f"tllib-ancon: stopped by {number.name} ")
    assert line.endswith("the same command continues after the last complete epoch")
    for name in ("cut", "whole"):
        assert main(adapt(name, *words)) == 0
    assert same(tmp_path)


# Cut off in an epoch


ALONE = [name for name in methods.names() if "+" not in name]
"""Methods that are no composition; the state of a composition is that of its parts."""

CHOICES = (
    "nrc+ancon",
    "shot+elr",
    "ancon --train-resizing default --image-size 14",
    "ancon --mc-dropout 0.5",
    "gce+ancon-auto --temperature 1",
    "ancon --schedule full",
    "ancon --temperature 1 --convention paper",
    "ancon --optimizer adamw --batch-norm source",
    "cdan",
    "mdd",
)


@pytest.mark.parametrize("method", [*ALONE, *CHOICES])
def test_every_method_continues_after_an_epoch_as_if_it_had_not_stopped(training, tmp_path, monkeypatch, method):
    more = () if method == "adabn" else ("--lr", "0.1")
    assert main(training("whole", method, "--epochs", "2", *more)) == 0
    cut_in_the_second_epoch(monkeypatch, training("cut", method, "--epochs", "2", *more))
    assert main(training("cut", method, "--epochs", "2", *more)) == 0
    assert same(tmp_path)


# Finished, overwritten


def test_a_finished_run_says_so(adapt, tmp_path, capsys):
    words = [word for word in adapt() if word != "--quiet"]
    assert main(words) == 0
    path = tmp_path / "run" / "result.json"
    result = path.read_bytes()
    first = capsys.readouterr().out
    assert main(words) == 0
    shown = capsys.readouterr()
    assert f"{tmp_path / 'run'} holds this run already, finished" in shown.err
    assert shown.out == first
    assert path.read_bytes() == result
