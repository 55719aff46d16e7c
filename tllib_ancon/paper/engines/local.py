"""Runs in processes on this machine, each with its own GPUs and its share of CPU threads."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tllib_ancon.errors import UserError
from tllib_ancon.paper import driver
from tllib_ancon.paper.engines import EngineConfig, runs_on
from tllib_ancon.paper.plan import Run


@dataclass(frozen=True)
class Local:
    """So many runs at a time as there are shares.

    Args:
        shares: environment variables of each
    """

    shares: Sequence[Mapping[str, str]]

    @property
    def at_a_time(self) -> int:
        return len(self.shares)

    def execute(self, runs: Sequence[Run], root: str, out: Path, say: Callable[[str], None]) -> list[driver.Failure]:
        return driver.execute(runs, out, self.shares, say)


def local(config: EngineConfig) -> Local:
    return Local(shares(config, visible_gpus(), os.cpu_count() or 1, os.environ))


def shares(
    config: EngineConfig, gpus: Sequence[str], cpus: int, environment: Mapping[str, str]
) -> list[dict[str, str]]:
    """The environment variables of each run at a time.

    Args:
        gpus: their names in ``CUDA_VISIBLE_DEVICES``
        cpus: cores of this machine
        environment: of this process; a number of threads in it stands

    Raises:
        UserError: a run needs more GPUs than there are, or the runs at a time do
    """
    per_run = _gpus_per_run(config, len(gpus))
    if per_run == 0:
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if gpus else {}
        return [{**hidden, **_threads(config.cpus_per_run)} for _ in range(config.jobs or 1)]
    most = runs_on(len(gpus), per_run)
    jobs = config.jobs or most
    if most == 0 or jobs > most:
        runs = "a run" if most == 0 else f"each of {jobs} runs at a time"
        raise UserError(f"`gpus_per_run` {per_run:g}: {runs} needs as many, and this machine has {len(gpus)} in all")
    even_share = None if jobs == 1 or "OMP_NUM_THREADS" in environment else max(1, cpus // jobs)
    threads = _threads(config.cpus_per_run or even_share)
    return [{"CUDA_VISIBLE_DEVICES": ",".join(_gpus_of(job, gpus, per_run)), **threads} for job in range(jobs)]


def visible_gpus() -> list[str]:
    """The GPUs of this process, as ``CUDA_VISIBLE_DEVICES`` names them."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    numbers = map(str, range(torch.cuda.device_count()))
    return list(numbers) if named is None else named.split(",")[: torch.cuda.device_count()]


def _gpus_per_run(config: EngineConfig, gpus: int) -> float:
    if config.gpus_per_run is not None:
        return config.gpus_per_run
    return 1 / math.ceil(max(config.jobs or 1, gpus) / gpus) if gpus else 0


def _gpus_of(job: int, gpus: Sequence[str], per_run: float) -> Sequence[str]:
    """Whole ones side by side; shares on one GPU after the other."""
    if per_run < 1:
        return [gpus[job % len(gpus)]]
    return gpus[job * int(per_run) : (job + 1) * int(per_run)]


def _threads(number: int | None) -> dict[str, str]:
    return {} if number is None else {"OMP_NUM_THREADS": str(number)}
