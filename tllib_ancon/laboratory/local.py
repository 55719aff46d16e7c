"""Engines that make the runs of a plan. The local engine starts processes of this machine, each with its own GPUs and
threads."""

import math
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from tllib_ancon.config.settings import Flag, Settings
from tllib_ancon.laboratory.plan import PlannedRun
from tllib_ancon.runtime.errors import BAD_INPUT, BadSetting, Interrupted, in_words, named
from tllib_ancon.runtime.interruption import Interruption
from tllib_ancon.runtime.types import Show
from tllib_ancon.training.run import RunDirectory

RECORD = "benchmark.json"
"""In the folder of the runs: the table and the runs that failed."""
LOG = "output.txt"
"""In a run's folder: what its command printed."""
POLL = 0.05
"""Seconds between two looks at what has ended."""

Environment = Mapping[str, str]
"""Environment variables of a run's command, beside those of this process."""


class EngineConfig(Settings):
    """Which engine makes the runs, and what a run gets of its machines."""

    FLAG = Flag(group="engine")

    engine: Annotated[Literal["local", "ray"], Flag(common=True)] = "local"
    """what makes the runs; local: processes on this machine; ray: tasks of Ray, here or on a cluster"""
    jobs: Annotated[int | None, Flag(common=True)] = Field(None, ge=1)
    """runs at a time on this machine; by default as many as its GPUs hold, or without a GPU its cores"""
    gpus_per_run: float | None = Field(None, ge=0)
    """GPUs of a run: a whole number or a share of one; by default 1, less if more runs are made at a time than there
    are GPUs"""
    cpus_per_run: int = Field(1, ge=1, le=4096)
    """cores of a run, which are its threads too: its numbers depend on how many these are"""
    address: str | None = None
    """address of a Ray cluster: host:port, or auto for the one that this machine belongs to; by default $RAY_ADDRESS,
    or else this machine alone"""

    def check(self) -> None:
        gpus = self.gpus_per_run or 0
        if gpus > 1 and gpus != int(gpus):
            raise BadSetting(
                f"{named('gpus_per_run')} must be a whole number or below 1, got {gpus}", setting="gpus_per_run"
            )
        if self.engine == "ray" and self.jobs is not None:
            raise BadSetting(
                f"{named('jobs')} is for {named('engine', 'local')}: Ray makes as many runs at a time as its nodes "
                f"hold",
                "leave it out",
                setting="jobs",
            )
        if self.engine == "local" and self.address is not None:
            raise BadSetting(
                f"{named('address')} {self.address} is for Ray", f"pass {named('engine', 'ray')}", setting="address"
            )


def finished(run: PlannedRun, out: Path) -> bool:
    return RunDirectory(out / run.name).finished


class _Schedule:
    """Which runs wait, which are being made, and why runs failed, by name."""

    def __init__(self, runs: Sequence[PlannedRun]):
        self.titles = {}
        for number, run in enumerate(runs, start=1):
            self.titles[run.name] = f"[{number}/{len(runs)}] {run.name}"
        self.waiting = {run.name: run for run in runs}
        self.running: dict[str, Any] = {}
        self.failures: dict[str, str] = {}

    def ready(self, most_running: float) -> Iterator[PlannedRun]:
        """The runs that wait for no other, while there is room for one more."""
        for run in list(self.waiting.values()):
            is_blocked = run.needs in self.waiting or run.needs in self.running
            if not is_blocked and len(self.running) < most_running:
                del self.waiting[run.name]
                yield run


class Engine(ABC):
    """Makes runs, each after the one that it starts from. An interrupted run resumes."""

    most_started: float  # runs that are started before one has ended
    out: Path
    say: Show

    def execute(self, runs: Sequence[PlannedRun], root: str, out: Path, say: Show) -> dict[str, str]:
        """Make the runs; returns why runs failed, by their names. SIGTERM and SIGINT are passed to the runs."""
        self.out = out
        self.say = say
        schedule = _Schedule(runs)
        with Interruption() as interruption:
            try:
                self._make_all(schedule, interruption)
            except BaseException:
                self.end(list(schedule.running.values()))
                raise
        return {run.name: schedule.failures[run.name] for run in runs if run.name in schedule.failures}

    def _make_all(self, schedule: _Schedule, interruption: Interruption) -> None:
        while schedule.waiting or schedule.running:
            if interruption.signal is not None:
                name = signal.Signals(interruption.signal).name
                self.say(f"{name}: the running commands end their step; once more ends them at once")
                raise Interrupted(interruption.signal, "while runs were made")
            self._advance(schedule)

    def _advance(self, schedule: _Schedule) -> None:
        """Start the runs that are ready, and take note of those that have ended."""
        for run in schedule.ready(self.most_started):
            if run.needs in schedule.failures:
                schedule.failures[run.name] = f"needs {run.needs}, which failed"
                continue
            try:
                schedule.running[run.name] = self.start(schedule.titles[run.name], run)
            except BAD_INPUT as error:
                schedule.failures[run.name] = in_words(error)
        if schedule.running:
            for name, reason in self.ended(schedule.running).items():
                del schedule.running[name]
                if reason is not None:
                    schedule.failures[name] = reason

    @abstractmethod
    def start(self, title: str, run: PlannedRun) -> Any: ...

    @abstractmethod
    def ended(self, running: Mapping[str, Any]) -> dict[str, str | None]:
        """The runs that have ended, after a little while, and why one failed."""

    @abstractmethod
    def end(self, running: Sequence[Any]) -> None:
        """Let the runs end their step, and wait for them."""


class Command:
    """A run's command in a process of its own, which ends when this process does; its output goes to the run's log."""

    def __init__(self, run: PlannedRun, out: Path, environment: Environment):
        self.environment = environment
        self._log = out / run.name / LOG
        self._log.parent.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-m", "tllib_ancon.laboratory.orphan", str(os.getpid()), *run.words]
        variables = {**os.environ, **environment}
        with open(self._log, "a", encoding="utf-8") as file:
            self._begin = file.tell()
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=variables)

    @property
    def failure(self) -> str | None:
        if self.process.returncode == 0:
            return None
        output = self._log.read_bytes()[self._begin :].decode(errors="replace").strip()
        *_, last_line = ["no output", *output.splitlines()]
        return f"exit status {self.process.returncode}: {last_line}"


class Local(Engine):
    """Makes as many runs at a time as there are shares of this machine, which are environment variables of a run."""

    def __init__(self, environments: Sequence[Environment]):
        self.most_started = len(environments)
        self.free = list(environments)

    def start(self, title: str, run: PlannedRun) -> Command:
        self.say(title)
        command = Command(run, self.out, self.free[0])
        del self.free[0]  # not before: a command that cannot start leaves its share free
        return command

    def ended(self, running: Mapping[str, Command]) -> dict[str, str | None]:
        time.sleep(POLL)
        ended = {name: command for name, command in running.items() if command.process.poll() is not None}
        self.free += [command.environment for command in ended.values()]
        return {name: command.failure for name, command in ended.items()}

    def end(self, running: Sequence[Command]) -> None:
        for command in running:
            command.process.terminate()
        try:
            for command in running:
                command.process.wait()
        except KeyboardInterrupt:
            for command in running:
                command.process.kill()
                command.process.wait()


def environments(config: EngineConfig, gpus: Sequence[str], cores: int) -> list[dict[str, str]]:
    """Environment variables of each concurrent run, for these cores and GPUs (named as in ``CUDA_VISIBLE_DEVICES``)."""
    threads = {"OMP_NUM_THREADS": str(config.cpus_per_run)}
    per_run = _gpus_per_run(config, len(gpus))
    if per_run == 0:
        jobs = config.jobs or max(1, cores // config.cpus_per_run)
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if gpus else {}
        return [{**hidden, **threads}] * jobs
    most = runs_on(len(gpus), per_run)
    jobs = config.jobs or most
    if most == 0 or jobs > most:
        runs = "a run"
        if most != 0:
            runs = f"each of {jobs} runs at a time"
        raise BadSetting(
            f"{named('gpus_per_run')} {per_run:g}: {runs} needs as many, and this machine has {len(gpus)} in all",
            setting="gpus_per_run",
        )
    width = max(1, int(per_run))
    in_turn = cycle(gpus)
    return [{"CUDA_VISIBLE_DEVICES": ",".join(islice(in_turn, width)), **threads} for _ in range(jobs)]


def _gpus_per_run(config: EngineConfig, gpus: int) -> float:
    if config.gpus_per_run is not None:
        return config.gpus_per_run
    if gpus == 0:
        return 0
    runs = max(config.jobs or 1, gpus)
    return 1 / math.ceil(runs / gpus)


def runs_on(gpus: int, per_run: float) -> int:
    """How many runs that take this many GPUs, or this share of one, fit."""
    if per_run >= 1:
        return int(gpus // per_run)
    return gpus * int(1 / per_run + 1e-9)


def visible_gpus() -> list[str]:
    """The GPUs of this process, as ``CUDA_VISIBLE_DEVICES`` names them."""
    import torch

    number = torch.cuda.device_count()
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    if names is None:
        return [str(gpu) for gpu in range(number)]
    return names.split(",")[:number]
