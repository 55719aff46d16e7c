"""Runs as tasks of Ray, on one machine or many: Ray schedules them, and makes those of a lost node again elsewhere."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

import ray
from ray.exceptions import RayError

from tllib_ancon.errors import Interrupted
from tllib_ancon.paper import driver
from tllib_ancon.paper.driver import Failure, finished
from tllib_ancon.paper.engines import EngineConfig, ray_cluster
from tllib_ancon.paper.plan import Run
from tllib_ancon.training.interruption import Interruption

POLL = 0.5
"""Seconds between two looks at what has begun and what has ended."""

MESSAGES = "ray.txt"
"""In the folder of the runs: what Ray has to say, of nodes that it lost among others."""

CANCEL_EVERY = 5.0
"""Seconds after which a cancellation that had no effect is repeated."""

END_WITHIN = 300.0
"""Seconds in which a command that was sent SIGTERM ends its step."""


@contextmanager
def connected(config: EngineConfig) -> Iterator[OnRay]:
    with ray_cluster.connection(config.address):
        gpus = config.gpus_per_run
        cpus = config.cpus_per_run or 1
        gpus = min(1, ray_cluster.gpus()) if gpus is None else gpus
        yield OnRay(cpus, gpus, ray_cluster.runs_at_a_time(cpus, gpus))


@dataclass(frozen=True)
class OnRay:
    """
    Args:
        cpus, gpus: of each run
        at_a_time: runs that the nodes hold
    """

    cpus: int
    gpus: float
    at_a_time: int

    def execute(self, runs: Sequence[Run], root: str, out: Path, say: Callable[[str], None]) -> list[Failure]:
        ray_cluster.check_shared(root, out)
        todo = [run for run in runs if not finished(run, out)]
        here = ray_cluster.on_node(ray.get_runtime_context().get_node_id())
        actor: Any = ray.remote(num_cpus=0)(Begun)
        begun = actor.options(scheduling_strategy=here).remote()
        tasks = self._submit(todo, out, begun)

        def show_progress() -> None:
            names = {node["NodeID"]: ray_cluster.called(node) for node in ray_cluster.known_nodes()}
            for number, node in ray.get(begun.take.remote()):
                say(f"[{number + 1}/{len(todo)}] {todo[number].name} on {names[node]}")

        with open(out / MESSAGES, "a", encoding="utf-8") as messages, redirect_stdout(messages):
            _wait(list(tasks.values()), show_progress)
        return _failures(todo, tasks)

    def _submit(self, runs: Sequence[Run], out: Path, begun: Any) -> dict[str, Any]:
        """A task for each run, which waits for that of the run that it starts from; by the run's name."""
        variables = {"OMP_NUM_THREADS": str(self.cpus), **({} if self.gpus else {"CUDA_VISIBLE_DEVICES": ""})}
        task = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=-1)(make)
        tasks: dict[str, Any] = {}
        for number, run in enumerate(runs):
            start = None if run.needs is None else tasks.get(run.needs)
            tasks[run.name] = task.remote(number, run, start, str(Path.cwd()), out, variables, begun)
        return tasks


class Begun:
    """An actor beside the command: which runs have begun, and where. A run may begin again, on another node."""

    def __init__(self) -> None:
        self.runs: list[tuple[int, str]] = []

    def add(self, number: int, node: str) -> None:
        self.runs.append((number, node))

    def take(self) -> list[tuple[int, str]]:
        """Those that have begun since the last call."""
        runs, self.runs = self.runs, []
        return runs


def make(
    number: int, run: Run, start: Failure | None, folder: str, out: Path, variables: driver.Environment, begun: Any
) -> Failure | None:
    """On a node: make one run in a process of its own.

    Args:
        number: of the run
        run: to make
        start: the failure of the run that it starts from
        folder: in which the benchmark was started
        out: folder of the run directories
        variables: of the process
        begun: called when the run begins
    """
    if start is not None:
        return Failure(run.name, f"needs {start.run}, which failed")
    os.chdir(folder)
    if finished(run, out):
        return None
    signal.signal(signal.SIGINT, signal.default_int_handler)  # by which Ray cancels; ignored if begun in the background
    begun.add.remote(number, ray.get_runtime_context().get_node_id())
    running: set[Popen[bytes]] = set()
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(driver.make, run, out, variables, running)
        _await(made, running)
    return made.result()


def _await(made: Future[Any], running: Collection[Popen[bytes]]) -> None:
    """Until the run has ended; a cancellation by Ray, however often it comes, is one SIGTERM for its command.

    Raises:
        KeyboardInterrupt: it was cancelled, and its command has ended
    """
    cancelled, sent = False, set[Popen[bytes]]()
    while not made.done():
        try:
            for process in set(running) - sent if cancelled else ():
                process.terminate()
                sent.add(process)  # after it: a cancellation in between repeats the signal rather than losing it
            wait([made], POLL)
        except KeyboardInterrupt:
            cancelled = True
    if cancelled:
        raise KeyboardInterrupt


def _wait(tasks: Sequence[Any], show_progress: Callable[[], None]) -> None:
    """Until all have ended; on SIGTERM or Ctrl-C the commands are sent SIGTERM and awaited.

    Raises:
        Interrupted: a signal came
    """
    waiting = list(tasks)
    with Interruption() as interruption:  # an exception must not come out of a call of Ray
        while waiting:
            _, waiting = ray.wait(waiting, timeout=POLL)
            show_progress()
            if waiting and interruption.signal is not None:
                _cancel(waiting)
                raise Interrupted(interruption.signal, "while runs were made")


def _cancel(tasks: Sequence[Any]) -> None:
    """Until all have ended; Ray's cancellation of a task that runs may be lost, so that it is repeated."""
    waiting, end = list(tasks), time.monotonic() + END_WITHIN
    while waiting and time.monotonic() < end:
        for task in waiting:
            ray.cancel(task)
        _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=CANCEL_EVERY)


def _failures(runs: Sequence[Run], tasks: dict[str, Any]) -> list[Failure]:
    outcomes = [_outcome(run, tasks[run.name]) for run in runs]
    return [failure for failure in outcomes if failure is not None]


def _outcome(run: Run, task: Any) -> Failure | None:
    try:
        failure: Failure | None = ray.get(task)
    except RayError as error:
        return Failure(run.name, ray_cluster.last_line(error))
    return failure
