"""Making the runs of a plan, each by its own command in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any

from tllib_ancon.errors import Interrupted
from tllib_ancon.paper import child
from tllib_ancon.paper.plan import Run

RESULT = "result.json"
RECORD = "benchmark.json"
"""In the folder of the runs: the table, the overrides, and the runs that failed."""
LOG = "output.txt"
"""In a run's folder: what its command printed."""


@dataclass(frozen=True)
class Failure:
    """A run that was not made, and the last line that its command printed."""

    run: str
    reason: str


def finished(run: Run, out: Path) -> bool:
    return (out / run.name / RESULT).is_file()


Environment = Mapping[str, str]
"""Environment variables of a run's command, beside those of this process."""


def execute(runs: Sequence[Run], out: Path, shares: Sequence[Environment], say: Callable[[str], None]) -> list[Failure]:
    """Make the runs that are not finished, one for each share at a time: source models first, then what starts from
    them.

    A run that was cut off goes on where it was, because its command does. A run that fails stops no other, except
    those that start from it.

    Args:
        runs: of :meth:`~tllib_ancon.paper.plan.Plan.runs`
        out: folder of the run directories
        shares: what each process at a time has of this machine
        say: shows one line of progress

    Raises:
        Interrupted: SIGTERM or SIGINT came; the commands that were running have been sent SIGTERM and have ended
    """
    failures: list[Failure] = []
    for stage in ("pretrain", "adapt"):
        broken = {failure.run for failure in failures}
        todo = [run for run in runs if run.command == stage and not finished(run, out)]
        failures += [Failure(run.name, f"needs {run.needs}, which failed") for run in todo if run.needs in broken]
        failures += _stage([run for run in todo if run.needs not in broken], out, shares, say)
    return failures


def _stage(
    runs: Sequence[Run], out: Path, shares: Sequence[Environment], say: Callable[[str], None]
) -> Iterable[Failure]:
    running: set[subprocess.Popen[bytes]] = set()
    free: SimpleQueue[Environment] = SimpleQueue()
    for share in shares:
        free.put(share)

    def make_next(number: int, run: Run) -> Failure | None:
        say(f"[{number}/{len(runs)}] {run.name}")
        share = free.get()
        try:
            return make(run, out, share, running)
        finally:
            free.put(share)

    with _signals_raise(running, say), ThreadPoolExecutor(len(shares)) as pool:
        futures = [pool.submit(make_next, number, run) for number, run in enumerate(runs, start=1)]
        try:
            outcomes = [future.result() for future in futures]
        except Interrupted:
            pool.shutdown(wait=False, cancel_futures=True)
            _terminate(running, futures)
            raise
    return [failure for failure in outcomes if failure is not None]


@contextmanager
def _signals_raise(running: Collection[subprocess.Popen[bytes]], say: Callable[[str], None]) -> Iterator[None]:
    """In this context the first SIGTERM or SIGINT is an exception, and the next one kills the commands."""
    came: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            for process in list(running):
                process.kill()
            return
        say(f"{signal.Signals(number).name}: the running commands end their step; once more ends them at once")
        raise Interrupted(number, "while runs were made")

    previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _terminate(running: Collection[subprocess.Popen[bytes]], futures: Sequence[Future[Any]]) -> None:
    """End every command, also one that is about to start, and wait for all."""
    sent: set[subprocess.Popen[bytes]] = set()
    while not all(future.done() for future in futures):
        for process in set(running) - sent:
            process.terminate()
            sent.add(process)
        time.sleep(0.05)


def make(run: Run, out: Path, environment: Environment, running: set[subprocess.Popen[bytes]]) -> Failure | None:
    """Make one run; its process is in ``running`` as long as it lasts."""
    try:
        return _run(run, out / run.name / LOG, environment, running)
    except OSError as error:
        return Failure(run.name, f"{error.filename or out / run.name / LOG}: {error.strerror}")


def _run(run: Run, log: Path, environment: Environment, running: set[subprocess.Popen[bytes]]) -> Failure | None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a", encoding="utf-8") as file:
        begin = log.stat().st_size
        command = child.command(run.words)
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env={**os.environ, **environment}
        )
        running.add(process)
        status = process.wait()
        running.discard(process)
    if status == 0:
        return None
    lines = log.read_bytes()[begin:].decode(errors="replace").strip().splitlines()
    return Failure(run.name, f"exit status {status}: {lines[-1] if lines else 'no output'}")
