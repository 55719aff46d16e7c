"""The local engine: processes of this machine make the runs, each with a GPU or with threads of its own."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import cycle, islice
from multiprocessing.connection import wait
from pathlib import Path

from tllib_ancon.laboratory.engine import EngineConfig, make
from tllib_ancon.laboratory.plan import PlannedRun


class _Process:
    """A pool of one process with a GPU ("" for none) and threads of its own: if it dies, one run alone fails."""

    def __init__(self, gpu: str, threads: int):
        self._resources = (gpu, threads)
        self._last_run: Future[str | None] | None = None
        self.pool = self._start()

    def _start(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(1, context, initializer=_begin, initargs=self._resources)

    @property
    def is_free(self) -> bool:
        return self._last_run is None or self._last_run.done()

    def submit(self, run: PlannedRun, out: Path) -> Future[str | None]:
        if self._last_run is not None and isinstance(self._last_run.exception(), BrokenProcessPool):
            self.pool = self._start()
        self._last_run = self.pool.submit(make, run, out)
        return self._last_run


class LocalEngine:
    """As many runs at a time as there are names in ``gpus``."""

    def __init__(self, gpus: Sequence[str], threads: int):
        self.most_running = len(gpus)
        self._processes = [_Process(gpu, threads) for gpu in gpus]

    def check_shared(self, out: Path) -> None:
        """This machine sees its folders."""

    def submit(self, run: PlannedRun, out: Path) -> Future[str | None]:
        free = next(process for process in self._processes if process.is_free)
        return free.submit(run, out)

    def end(self) -> None:
        if not all(process.is_free for process in self._processes):
            for child in multiprocessing.active_children():
                child.terminate()
        try:
            for process in self._processes:
                process.pool.shutdown()
        except BaseException:
            for child in multiprocessing.active_children():
                child.kill()
            raise


def _begin(gpu: str, threads: int) -> None:
    """In a process of a pool: take the GPU and the threads, and end with the process that started this one."""
    import torch

    from tllib_ancon.cli.main import keep_freed_memory

    os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    torch.set_num_threads(threads)
    keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the engine passes it on as SIGTERM
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def gpus_of_runs(config: EngineConfig, gpus: Sequence[str], cores: int) -> list[str]:
    """The GPU of each run at a time, of these ``gpus``; "" for a run without one."""
    if not gpus or config.gpus_per_run == 0:
        return [""] * (config.jobs or max(1, cores // config.cpus_per_run))
    jobs = config.jobs or len(gpus) * int(1 / config.gpus_per_run)
    return list(islice(cycle(gpus), jobs))


def visible_gpus() -> list[str]:
    """The GPUs of this process, as ``CUDA_VISIBLE_DEVICES`` names them."""
    import torch

    number = torch.cuda.device_count()
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    if names is None:
        return [str(gpu) for gpu in range(number)]
    return names.split(",")[:number]
