"""Making the runs of a plan, each by its own command in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tllib_ancon.paper.plan import Run

RESULT = "result.json"
LOG = "output.txt"
"""In a run's folder: what its command printed."""


@dataclass(frozen=True)
class Failure:
    """A run that was not made, and the last line that its command printed."""

    run: str
    reason: str


def finished(run: Run, out: Path) -> bool:
    return (out / run.name / RESULT).is_file()


def execute(runs: Sequence[Run], out: Path, jobs: int, say: Callable[[str], None]) -> list[Failure]:
    """Make the runs that are not finished, ``jobs`` at a time: source models first, then what starts from them.

    A run that was cut off goes on where it was, because its command does. A run that fails stops no other, except
    those that start from it.

    Args:
        runs: of :meth:`~tllib_ancon.paper.plan.Plan.runs`
        out: folder of the run directories
        jobs: processes at a time
        say: shows one line of progress
    """
    failures: list[Failure] = []
    for stage in ("pretrain", "adapt"):
        broken = {failure.run for failure in failures}
        todo = [run for run in runs if run.command == stage and not finished(run, out)]
        failures += [Failure(run.name, f"needs {run.needs}, which failed") for run in todo if run.needs in broken]
        failures += _stage([run for run in todo if run.needs not in broken], out, jobs, say)
    return failures


def _stage(runs: Sequence[Run], out: Path, jobs: int, say: Callable[[str], None]) -> Iterable[Failure]:
    def make(number: int, run: Run) -> Failure | None:
        say(f"[{number}/{len(runs)}] {run.name}")
        return _make(run, out)

    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(make, number, run) for number, run in enumerate(runs, start=1)]
        try:
            outcomes = [future.result() for future in futures]
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
    return [failure for failure in outcomes if failure is not None]


def _make(run: Run, out: Path) -> Failure | None:
    log = out / run.name / LOG
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a", encoding="utf-8") as file:
        status = subprocess.run(
            [sys.executable, "-m", "tllib_ancon", *run.words], stdin=subprocess.DEVNULL, stdout=file, stderr=file
        ).returncode
    if status == 0:
        return None
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return Failure(run.name, f"exit status {status}: {lines[-1] if lines else 'no output'}")
