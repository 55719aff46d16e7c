"""A run that fails or dies ends no other, and a signal ends all runs of this machine, which resume."""

import os
import signal
import threading

import psutil
import pytest

from tests.support.domains_on_disk import small_arguments
from tests.support.killable import wait_for
from tllib_ancon.cli.commands import COMMANDS
from tllib_ancon.cli.main import parser_of
from tllib_ancon.laboratory.engine import LOG, EngineConfig, LocalEngine, make_all
from tllib_ancon.laboratory.plan import PlannedRun
from tllib_ancon.runtime.errors import Interrupted


def source_model(domains, out, name, epochs):
    words = [*small_arguments(domains), "--epochs", str(epochs), "--log", str(out / name)]
    return PlannedRun(name, "pretrain", COMMANDS["pretrain"].settings_in(parser_of("pretrain").parsed(words)))


def test_a_run_that_fails_or_is_killed_ends_no_other(domains, tmp_path):
    endless = source_model(domains, tmp_path, "endless", 100_000)
    missing = PlannedRun("missing", "pretrain", {"root": "/nowhere", "log": str(tmp_path / "missing")})
    short = source_model(domains, tmp_path, "short", 1)
    shown = []

    def kill_endless(line):
        shown.append(line)
        if line.endswith("missing"):
            wait_for(lambda: (tmp_path / "endless/metrics.jsonl").is_file())
            for child in psutil.Process().children():
                if str(tmp_path / "endless" / LOG) in [file.path for file in child.open_files()]:
                    child.kill()

    failures = make_all([endless, missing, short], LocalEngine(EngineConfig(jobs=2)), kill_endless)
    assert failures.keys() == {"endless", "missing"}
    assert "terminated abruptly" in failures["endless"]
    assert failures["missing"].startswith("exit status 2: tllib-ancon: error: ")
    assert short.finished


def test_a_signal_ends_the_runs_after_their_step(domains, tmp_path):
    run = source_model(domains, tmp_path, "run", 100_000)
    metrics = tmp_path / "run/metrics.jsonl"

    def send():
        wait_for(metrics.is_file)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=send).start()
    with pytest.raises(Interrupted, match="SIGTERM"):
        make_all([run], LocalEngine(EngineConfig(jobs=1)), print)
    assert "stopped by SIGTERM in epoch" in (tmp_path / "run" / LOG).read_text()
