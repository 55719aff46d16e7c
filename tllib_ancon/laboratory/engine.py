"""Making the runs of a plan: their order, their failures, and what one run does. Engines say where it happens."""

import sys
import traceback
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import Field

from tllib_ancon.config.settings import Flag, Settings
from tllib_ancon.laboratory.plan import PlannedRun
from tllib_ancon.runs.directory import RunDirectory
from tllib_ancon.runtime.errors import BadSetting, Interrupted, in_words, named, one_line
from tllib_ancon.runtime.interruption import Interruption
from tllib_ancon.runtime.types import Show

RECORD = "benchmark.json"
"""In the folder of the runs: the table and the runs that failed."""
LOG = "output.txt"
"""In a run's folder: what its command printed."""
POLL = 0.2
"""Seconds between two looks for a signal."""


class EngineConfig(Settings):
    """Which engine makes the runs, and what a run gets of its machines."""

    FLAG = Flag(group="engine")

    engine: Annotated[Literal["local", "ray"], Flag(common=True)] = "local"
    """what makes the runs; local: processes on this machine; ray: tasks of Ray, here or on a cluster"""
    jobs: Annotated[int | None, Flag(common=True)] = Field(None, ge=1)
    """runs at a time on this machine; by default one for each GPU, or without a GPU one for each core"""
    gpus_per_run: float = Field(1.0, ge=0, le=1)
    """share of a GPU that a run takes; 0.5: two runs on each GPU, 0: none"""
    cpus_per_run: int = Field(1, ge=1, le=4096)
    """cores of a run, which are its threads too: its numbers depend on how many these are"""
    address: str | None = None
    """address of a Ray cluster: host:port, or auto for the one that this machine belongs to; by default $RAY_ADDRESS,
    or else this machine alone"""

    def check(self) -> None:
        if self.engine == "ray" and self.jobs is not None:
            raise BadSetting(
                f"{named('jobs')} is for {named('engine', 'local')}: Ray makes as many runs at a time as its nodes "
                "hold",
                "leave it out",
                setting="jobs",
            )
        if self.engine == "local" and self.address is not None:
            raise BadSetting(
                f"{named('address')} {self.address} is for Ray", f"pass {named('engine', 'ray')}", setting="address"
            )


class Engine(Protocol):
    """Where runs are made."""

    most_running: int

    def check_shared(self, out: Path) -> None:
        """Raise an error for a machine that does not see the folders."""

    def submit(self, run: PlannedRun, out: Path) -> Future[str | None]:
        """Start :func:`make` of the run."""

    def end(self) -> None:
        """Let the runs end their step, and wait for them."""


def finished(run: PlannedRun, out: Path) -> bool:
    return RunDirectory(out / run.name).finished


def make(run: PlannedRun, out: Path) -> str | None:
    """Run the command of a run in this process, its output in the run's log; returns why it failed."""
    from tllib_ancon.cli.main import main

    log = out / run.name / LOG
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
        try:
            status = main(run.words)
        except Exception:
            traceback.print_exc()
            status = 1
    if status == 0:
        return None
    *_, last_line = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"exit status {status}: {last_line}"


def make_all(runs: Sequence[PlannedRun], engine: Engine, out: Path, show: Show) -> dict[str, str]:
    """Make the runs, each after the one that it starts from; a run of an earlier attempt resumes.

    Returns: why runs failed, by their names

    Raises:
        Interrupted: SIGTERM or Ctrl-C came, and the runs have ended their step
    """
    schedule = _Schedule(runs, engine, out, show)
    with Interruption() as interruption:
        try:
            while schedule.waiting or schedule.running:
                schedule.start_ready()
                schedule.collect_finished()
                if interruption.signal is not None:
                    show("the running commands end their step; once more ends them at once")
                    raise Interrupted(interruption.signal, "while runs were made")
        finally:
            engine.end()
    return {run.name: schedule.failures[run.name] for run in runs if run.name in schedule.failures}


class _Schedule:
    """Which runs wait, which are being made, and why runs failed, by name."""

    def __init__(self, runs: Sequence[PlannedRun], engine: Engine, out: Path, show: Show):
        self.waiting = {run.name: run for run in runs}
        self.running: dict[Future[str | None], PlannedRun] = {}
        self.failures: dict[str, str] = {}
        self._num_runs = len(runs)
        self._engine = engine
        self._out = out
        self._show = show

    def start_ready(self) -> None:
        """Start runs whose source model is not waiting or being made, as many as the engine takes."""
        unfinished = {*self.waiting, *[run.name for run in self.running.values()]}
        ready = [run for run in self.waiting.values() if run.needs not in unfinished]
        for run in ready[: self._engine.most_running - len(self.running)]:
            del self.waiting[run.name]
            if run.needs in self.failures:
                self.failures[run.name] = f"needs {run.needs}, which failed"
            else:
                self.running[self._engine.submit(run, self._out)] = run

    def collect_finished(self) -> None:
        for future in wait(self.running, POLL, FIRST_COMPLETED).done:
            run = self.running.pop(future)
            reason = _failure(future)
            if reason is not None:
                self.failures[run.name] = reason
            num_ended = self._num_runs - len(self.waiting) - len(self.running)
            self._show(f"[{num_ended}/{self._num_runs}] {run.name}")


def _failure(future: Future[str | None]) -> str | None:
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, OSError):
        return in_words(error)
    return one_line(error)


UNLIMITED = sys.maxsize
"""Runs at a time of an engine that schedules them itself."""
