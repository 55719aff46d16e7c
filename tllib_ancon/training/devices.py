"""Devices, random numbers and the processes of a launch, by PyTorch and Accelerate."""

import ctypes
import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import psutil
import torch
from torch import distributed

from tllib_ancon import processes
from tllib_ancon.errors import BAD_INPUT, UserError, in_words

Arguments = ParamSpec("Arguments")
Outcome = TypeVar("Outcome")


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def launched() -> int:
    """How many processes were started for this run, joined or not."""
    return int(os.environ.get("WORLD_SIZE", 1)) if "RANK" in os.environ else processes.world_size()


def join() -> None:
    """Connect to the other processes of the launch, if there are any: tensors on a CPU by gloo, on a GPU by NCCL."""
    if launched() == 1 or processes.world_size() > 1:
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        distributed.init_process_group("cpu:gloo,cuda:nccl")
    else:
        distributed.init_process_group("gloo")


def leave() -> None:
    if processes.world_size() > 1:
        distributed.destroy_process_group()


def is_main() -> bool:
    return processes.rank() == 0


def on_main(function: Callable[Arguments, Outcome]) -> Callable[Arguments, Outcome]:
    """Decorate a function that the main process calls for all: each gets what it returns, or its error."""

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Outcome:
        if processes.world_size() == 1:
            return function(*args, **kwargs)
        outcome: list[Any] = [None, None]
        if is_main():
            try:
                outcome[0] = function(*args, **kwargs)
            except BAD_INPUT as error:
                outcome[1] = in_words(error)
        distributed.broadcast_object_list(outcome, src=0)
        if outcome[1] is not None:
            raise UserError(outcome[1])
        returned: Outcome = outcome[0]
        return returned

    return call


def collect(value: Any) -> list[Any]:
    """The values of all processes, on the main one; elsewhere an empty list. Their tensors are on the CPU."""
    if processes.world_size() == 1:
        return [value]
    values = [None] * processes.world_size() if is_main() else None
    distributed.gather_object(value, values, dst=0)
    return values or []


def is_lost_connection(error: BaseException) -> bool:
    words = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")
    return processes.world_size() > 1 and any(word in str(error) for word in words)


def free_memory() -> int:
    """Bytes that each process of the launch may still take of this machine's memory, or of its container's."""
    free, group = [int(psutil.virtual_memory().available)], Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):  # no container, or one without a limit
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        free.append(limit - used)
    return min(free) // launched()


def create_accelerator(mixed_precision: str | None) -> Any:
    """An ``accelerate.Accelerator``; it needs ``cpu`` and a number of threads for many processes without a GPU."""
    from accelerate import Accelerator, DistributedDataParallelKwargs
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state()
    only_cpus = processes.world_size() > 1 and not torch.cuda.is_available()
    if only_cpus:
        os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))
    parallel = DistributedDataParallelKwargs(gradient_as_bucket_view=True)
    return Accelerator(mixed_precision=mixed_precision, cpu=only_cpus, kwargs_handlers=[parallel])


def make_reproducible(seed: int, deterministic: bool = False) -> None:
    """Seed every generator; with ``deterministic`` an operation without a deterministic algorithm is an error."""
    from accelerate.utils import set_seed

    set_seed(seed)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(deterministic)
    torch.backends.cudnn.benchmark = False


MOST_MAPPED, MAPPED_FROM, RETURNED_FROM = -4, -3, -1
"""Parameters of glibc's ``mallopt``: the size from which blocks are mapped one by one, and the free bytes at which the
heap shrinks."""


@contextmanager
def using_processor(threads: int | None) -> Iterator[None]:
    """In this context PyTorch uses this number of CPU threads, and glibc keeps freed memory, which is faster."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    mallopt = getattr(library, "mallopt", lambda *_: None)  # other C libraries have none
    mallopt(MOST_MAPPED, 0)
    mallopt(RETURNED_FROM, 2**31 - 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        for parameter, usual in ((MOST_MAPPED, 65_536), (MAPPED_FROM, 2**25), (RETURNED_FROM, 2**26)):
            mallopt(parameter, usual)
        getattr(library, "malloc_trim", lambda _: None)(0)
