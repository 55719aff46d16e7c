"""Devices, memory, random numbers and the state that a process shares, by PyTorch and Accelerate."""

import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil
import torch

from tllib_ancon.runtime import processes


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def free_memory() -> int:
    """Bytes that each process of the launch may still take of this machine's memory, or of its container's."""
    free = int(psutil.virtual_memory().available)
    with suppress(OSError, ValueError):  # no container, or one without a limit
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        free = min(free, limit - used)
    return free // processes.launched()


def create_accelerator(mixed_precision: str | None) -> Any:
    """An ``accelerate.Accelerator``; it needs ``cpu`` and a number of threads for many processes without a GPU.

    Accelerate shares one state between all accelerators of a process, also with one of the caller's. It starts anew
    here; :func:`restoring_state` restores the caller's.
    """
    from accelerate import Accelerator, DistributedDataParallelKwargs

    for shared_state in _states_of_accelerate():
        shared_state.clear()
    only_cpus = processes.world_size() > 1 and not torch.cuda.is_available()
    if only_cpus:
        os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))
    parallel = DistributedDataParallelKwargs(gradient_as_bucket_view=True)
    return Accelerator(mixed_precision=mixed_precision, cpu=only_cpus, kwargs_handlers=[parallel])


def make_reproducible(seed: int) -> None:
    """Seed every generator, and let cuDNN choose its algorithms without trying them."""
    from accelerate.utils import set_seed

    set_seed(seed)
    torch.backends.cudnn.benchmark = False


@contextmanager
def restoring_state(threads: int | None) -> Iterator[None]:
    """Restore the caller's state of the process at the end of this context, also by an error.

    It is threads, default type, random generators, cuDNN's choice of algorithms, Accelerate's state and environment.
    In the context PyTorch uses this number of CPU threads, and makes tensors of float32.
    """
    with ExitStack() as caller:
        for read, write in _SHARED_STATE:
            caller.callback(write, read())
        caller.enter_context(torch.random.fork_rng(range(torch.cuda.device_count())))
        caller.enter_context(patch.dict(os.environ))
        torch.set_default_dtype(torch.float32)
        if threads is not None:
            torch.set_num_threads(threads)
        if torch.cuda.is_available():
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # products of matrices are deterministic then
        yield


def _set_benchmark(benchmark: bool) -> None:
    torch.backends.cudnn.benchmark = benchmark


def _copies_of_accelerate() -> list[dict[str, Any]]:
    return [dict(shared_state) for shared_state in _states_of_accelerate()]


def _set_states_of_accelerate(copies: list[dict[str, Any]]) -> None:
    for shared_state in _states_of_accelerate():
        shared_state.clear()
    for shared_state, values in zip(_states_of_accelerate(), copies, strict=False):  # before the import none
        shared_state.update(values)


def _states_of_accelerate() -> list[dict[str, Any]]:
    """What Accelerate shares between all objects of a process; empty until it is imported."""
    module = sys.modules.get("accelerate.state")
    if module is None:
        return []
    owners = (module.AcceleratorState, module.PartialState, module.GradientState)
    return [owner._shared_state for owner in owners]


_SHARED_STATE: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_default_dtype, torch.set_default_dtype),
    (random.getstate, random.setstate),
    (np.random.get_state, np.random.set_state),
    (lambda: torch.backends.cudnn.benchmark, _set_benchmark),
    (_copies_of_accelerate, _set_states_of_accelerate),
)
"""What a process shares: functions that read it and that write it back."""
