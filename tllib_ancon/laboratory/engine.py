"""Making the runs of a plan: their order, their failures, and the processes that make them on this machine."""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import redirect_stderr, redirect_stdout
from itertools import cycle, islice
from typing import Annotated, Protocol

from pydantic import Field

from tllib_ancon.config.settings import Flag, Settings
from tllib_ancon.laboratory.plan import PlannedRun
from tllib_ancon.runtime.errors import BadSetting, Interrupted, named, one_line
from tllib_ancon.runtime.interruption import Interruption
from tllib_ancon.runtime.memory import keep_freed_memory
from tllib_ancon.runtime.types import Show

LOG = "output.txt"
"""In a run's folder: what its command printed."""
POLL = 0.2
"""Seconds between two looks for a signal."""


class EngineConfig(Settings):
    """Where the runs are made, and what a run gets of its machine."""

    FLAG = Flag(group="engine")

    jobs: Annotated[int | None, Flag(common=True)] = Field(None, ge=1)
    """runs at a time on this machine; by default one for each GPU, or without a GPU one for each core; with more
    runs than GPUs, some share one"""
    cpus_per_run: int = Field(1, ge=1, le=4096)
    """cores of a run, which are its threads too: its numbers depend on how many these are"""
    address: str | None = None
    """address of a Ray cluster that makes the runs: host:port, or auto for the one that this machine belongs to; by
    default this machine makes them"""

    def check(self) -> None:
        if self.address is not None and self.jobs is not None:
            raise BadSetting(
                f"{named('jobs')} is for this machine alone: Ray makes as many runs at a time as its nodes hold",
                f"leave it or {named('address')} out",
                setting="jobs",
            )


class Engine(Protocol):
    """Where runs are made."""

    def submit(self, run: PlannedRun) -> Future[str | None]:
        """Call :func:`make` for the run as soon as there is room."""

    def end(self) -> None:
        """Let the runs end their step, and wait for them."""


def make(run: PlannedRun) -> str | None:
    """Run the command of a run in this process, its output in the run's log; returns why it failed."""
    from tllib_ancon.cli.main import main

    log = run.folder / LOG
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
        try:
            status = main(run.words)
        except Exception:
            traceback.print_exc()
            status = 1
    if status == 0:
        return None
    *_, last_line = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return f"exit status {status}: {last_line}"


def make_all(runs: Sequence[PlannedRun], engine: Engine, show: Show) -> dict[str, str]:
    """Make the runs that are not finished, each after the one that it starts from; an interrupted one resumes.

    Returns: why runs failed, by their names

    Raises:
        Interrupted: SIGTERM or Ctrl-C came, and the runs have ended their step
    """
    with Interruption() as interruption:
        try:
            return _made_in_order([run for run in runs if not run.finished], engine, show, interruption)
        finally:
            engine.end()


def _made_in_order(
    runs: Sequence[PlannedRun], engine: Engine, show: Show, interruption: Interruption
) -> dict[str, str]:
    names = {run.name for run in runs}
    running = {engine.submit(run): run for run in runs if run.needs not in names}
    failures: dict[str, str] = {}
    num_ended = 0
    while running:
        for future in wait(running, POLL, FIRST_COMPLETED).done:
            run = running.pop(future)
            next_runs = [next_run for next_run in runs if next_run.needs == run.name]
            reason = _failure(future, run)
            num_ended += 1
            if reason is None:
                running |= {engine.submit(next_run): next_run for next_run in next_runs}
            else:
                failures[run.name] = reason
                failures |= {next_run.name: f"needs {run.name}, which failed" for next_run in next_runs}
                num_ended += len(next_runs)
            show(f"[{num_ended}/{len(runs)}] {run.name}")
        if interruption.signal is not None:
            show("the running commands end their step")
            raise Interrupted(interruption.signal, "while runs were made")
    return failures


def _failure(future: Future[str | None], run: PlannedRun) -> str | None:
    try:
        reason = future.result()
    except Exception as error:
        return one_line(error)
    if reason is None and not run.finished:
        return f"its result is not in {run.folder}: the machine that made it must share this folder"
    return reason


class LocalEngine:
    """Makes each run in a process of its own on this machine, with a GPU or with threads of its own."""

    def __init__(self, config: EngineConfig):
        self._num_threads = config.cpus_per_run
        self._of_thread = threading.local()
        gpus = _gpus_of_runs(config)
        self._executor = ThreadPoolExecutor(len(gpus), initializer=self._take_gpu, initargs=(gpus,))

    def _take_gpu(self, gpus: list[str]) -> None:
        self._of_thread.gpu = gpus.pop(0)

    def submit(self, run: PlannedRun) -> Future[str | None]:
        return self._executor.submit(self._make, run)

    def _make(self, run: PlannedRun) -> str | None:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, context, _begin, (self._of_thread.gpu, self._num_threads)) as process:
            return process.submit(make, run).result()

    def end(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()
        self._executor.shutdown()


def _begin(gpu: str, num_threads: int) -> None:
    """In the process of a run: take the GPU and the threads, and end with a parent that was killed."""
    import torch

    os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    torch.set_num_threads(num_threads)
    keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which sends it to the parent as well
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _gpus_of_runs(config: EngineConfig) -> list[str]:
    """The GPU of each run at a time, as ``CUDA_VISIBLE_DEVICES`` names it; "" for a run without one."""
    import torch

    number = torch.cuda.device_count()
    if number == 0:
        return [""] * (config.jobs or max(1, (os.cpu_count() or 1) // config.cpus_per_run))
    variable = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = variable.split(",") if variable else list(map(str, range(number)))
    return list(islice(cycle(names[:number]), config.jobs or number))
