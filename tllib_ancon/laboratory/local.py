"""Engines that make the runs of a plan. The local engine starts processes of this machine, each with its own GPUs and
threads."""

import math
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from tllib_ancon.errors import BAD_INPUT, Interrupted, UserError, in_words
from tllib_ancon.interruption import Interruption
from tllib_ancon.laboratory.plan import Run
from tllib_ancon.settings import Flag, Settings

RESULT = "result.json"
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
        gpus = self.gpus_per_run
        if gpus is not None and gpus > 1 and gpus != int(gpus):
            raise UserError(f"`gpus_per_run` must be a whole number or below 1, got {gpus}")
        if self.engine == "ray" and self.jobs is not None:
            raise UserError(
                "`jobs` is for `engine=local`: Ray makes as many runs at a time as its nodes hold; leave it out"
            )
        if self.engine == "local" and self.address is not None:
            raise UserError(f"`address` {self.address} is for Ray; pass `engine=ray`")


def finished(run: Run, out: Path) -> bool:
    return (out / run.name / RESULT).is_file()


class Engine(ABC):
    """Makes runs, each after the one that it starts from. An interrupted run resumes."""

    most_started: float  # runs that are started before one has ended
    out: Path
    say: Callable[[str], None]

    def execute(self, runs: Sequence[Run], root: str, out: Path, say: Callable[[str], None]) -> dict[str, str]:
        """Make the runs; returns why runs failed, by their names. SIGTERM and SIGINT are passed to the runs."""
        self.out, self.say = out, say
        waiting = {run.name: (f"[{number}/{len(runs)}] {run.name}", run) for number, run in enumerate(runs, start=1)}
        running: dict[str, Any] = {}
        reasons: dict[str, str] = {}
        with Interruption() as interruption:
            try:
                while waiting or running:
                    if interruption.signal is not None:
                        signed = signal.Signals(interruption.signal).name
                        say(f"{signed}: the running commands end their step; once more ends them at once")
                        raise Interrupted(interruption.signal, "while runs were made")
                    for name, (title, run) in list(waiting.items()):
                        if run.needs in waiting or run.needs in running or len(running) >= self.most_started:
                            continue
                        del waiting[name]
                        try:
                            if run.needs in reasons:
                                raise UserError(f"needs {run.needs}, which failed; give the command again")
                            running[name] = self.start(title, run)
                        except BAD_INPUT as error:
                            reasons[name] = in_words(error)
                    for name, reason in self.ended(running).items() if running else ():
                        del running[name]
                        reasons |= {} if reason is None else {name: reason}
            except BaseException:
                self.end(list(running.values()))
                raise
        return {run.name: reasons[run.name] for run in runs if run.name in reasons}

    @abstractmethod
    def start(self, title: str, run: Run) -> Any: ...

    @abstractmethod
    def ended(self, running: Mapping[str, Any]) -> dict[str, str | None]:
        """The runs that have ended, after a little while, and why one failed."""

    @abstractmethod
    def end(self, running: Sequence[Any]) -> None:
        """Let the runs end their step, and wait for them."""


class Command:
    """A run's command in a process of its own, which ends when this process does; its output goes to the run's log."""

    def __init__(self, run: Run, out: Path, environment: Environment):
        self.environment, self._log = environment, out / run.name / LOG
        words = [sys.executable, "-m", "tllib_ancon.orphan", str(os.getpid()), *run.words]
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with open(self._log, "a", encoding="utf-8") as file:
            self._begin, variables = file.tell(), {**os.environ, **environment}
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=variables)

    @property
    def failure(self) -> str | None:
        if self.process.returncode == 0:
            return None
        lines = self._log.read_bytes()[self._begin :].decode(errors="replace").strip().splitlines()
        return f"exit status {self.process.returncode}: {lines[-1] if lines else 'no output'}"


class Local(Engine):
    """Makes as many runs at a time as there are shares of this machine, which are environment variables of a run."""

    def __init__(self, environments: Sequence[Environment]):
        self.most_started = len(environments)
        self.free = list(environments)

    def start(self, title: str, run: Run) -> Command:
        self.say(title)
        command = Command(run, self.out, self.free[0])
        del self.free[0]
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
    per_run = config.gpus_per_run
    if per_run is None:
        per_run = 1 / math.ceil(max(config.jobs or 1, len(gpus)) / len(gpus)) if gpus else 0
    if per_run == 0:
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if gpus else {}
        return [{**hidden, **threads}] * (config.jobs or max(1, cores // config.cpus_per_run))
    most = runs_on(len(gpus), per_run)
    jobs = config.jobs or most
    if most == 0 or jobs > most:
        runs = "a run" if most == 0 else f"each of {jobs} runs at a time"
        raise UserError(f"`gpus_per_run` {per_run:g}: {runs} needs as many, and this machine has {len(gpus)} in all")
    width = max(1, int(per_run))
    own = [[gpus[(job * width + place) % len(gpus)] for place in range(width)] for job in range(jobs)]
    return [{"CUDA_VISIBLE_DEVICES": ",".join(names), **threads} for names in own]


def runs_on(gpus: int, per_run: float) -> int:
    return int(gpus // per_run) if per_run >= 1 else gpus * int(1 / per_run + 1e-9)


def visible_gpus() -> list[str]:
    """The GPUs of this process, as ``CUDA_VISIBLE_DEVICES`` names them."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    numbers = map(str, range(torch.cuda.device_count()))
    return list(numbers) if named is None else named.split(",")[: torch.cuda.device_count()]
