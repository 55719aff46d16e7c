"""A plan makes source models first and each run once; a failure stops only what starts from it."""

from concurrent.futures import Future
from dataclasses import replace

import pytest
import torch

from tests.support.refusals import REFUSED, one_line
from tllib_ancon.laboratory.engine import EngineConfig, _gpus_of_runs, make_all
from tllib_ancon.laboratory.plan import PlannedRun

SOURCES = [PlannedRun(f"source/{name}", "pretrain", {"root": name}) for name in "ab"]
ADAPTATIONS = [
    PlannedRun(f"erm/{number}", "adapt", {"root": str(number)}, f"source/{source}")
    for number, source in enumerate("abab")
]
RUNS = [*ADAPTATIONS, *SOURCES]
EIGHT = [str(number) for number in range(8)]


def runs_in(folder):
    return [replace(run, settings={**run.settings, "log": str(folder / run.name)}) for run in RUNS]


class Recorder:
    """An engine whose runs end at once; those whose root is in ``broken`` fail, and ``elsewhere`` leave no result."""

    def __init__(self, broken=(), elsewhere=()):
        self.broken = broken
        self.elsewhere = elsewhere
        self.made = []

    def submit(self, run):
        self.made.append(run.name)
        future = Future()
        root = run.settings["root"]
        if root in self.broken:
            future.set_exception(OSError("the disk is full"))
            return future
        if root not in self.elsewhere:
            run.folder.mkdir(parents=True)
            (run.folder / "result.json").touch()
        future.set_result(None)
        return future

    def end(self):
        self.has_ended = True


def test_sources_come_first_and_everything_is_made_once(tmp_path):
    engine = Recorder()
    shown = []
    assert make_all(runs_in(tmp_path), engine, shown.append) == {}
    assert sorted(engine.made) == sorted(run.name for run in RUNS)
    for run in ADAPTATIONS:
        assert engine.made.index(run.needs) < engine.made.index(run.name)
    assert sorted(shown)[0].startswith("[1/6] source/")
    assert engine.has_ended


def test_a_failed_run_stops_only_what_starts_from_it(tmp_path):
    engine = Recorder(broken="a1", elsewhere="3")
    failures = make_all(runs_in(tmp_path), engine, print)
    assert failures.keys() == {"source/a", "erm/0", "erm/1", "erm/2", "erm/3"}
    assert failures["source/a"].startswith("the disk is full")
    assert failures["erm/0"] == "needs source/a, which failed"
    assert "the machine that made it must share this folder" in failures["erm/3"]
    assert sorted(engine.made) == ["erm/1", "erm/3", "source/a", "source/b"]


@pytest.mark.parametrize(
    ("settings", "visible", "expected"),
    [
        ({}, EIGHT, EIGHT),
        ({"jobs": 3}, ["0", "GPU-b"], ["0", "GPU-b", "0"]),
        ({}, [], [""] * 16),
        ({"cpus_per_run": 17}, [], [""]),
    ],
)
def test_each_run_has_a_gpu_or_cores(settings, visible, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(visible))
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(visible))
    assert _gpus_of_runs(EngineConfig(**settings)) == expected


@pytest.mark.parametrize(("settings", "message"), REFUSED["engines"])
def test_settings_that_are_refused(settings, message):
    with one_line(message):
        EngineConfig(**settings)
