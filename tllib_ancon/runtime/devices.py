"""Devices, memory, random numbers and the state that a process shares."""

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
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


@contextmanager
def restoring_state(threads: int | None, seed: int | None = None) -> Iterator[None]:
    """Restore the caller's state of the process at the end of this context, also by an error.

    It is threads, default type, random generators, cuDNN's choice of algorithms and environment. In the context PyTorch
    uses this number of CPU threads, and makes tensors of float32. A seed is that of every generator, and
    cuDNN chooses its algorithms without trying them.
    """
    with ExitStack() as caller:
        caller.callback(torch.set_num_threads, torch.get_num_threads())
        caller.callback(torch.set_default_dtype, torch.get_default_dtype())
        caller.callback(random.setstate, random.getstate())
        caller.callback(np.random.set_state, np.random.get_state())
        caller.callback(setattr, torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
        caller.enter_context(torch.random.fork_rng(range(torch.cuda.device_count())))
        caller.enter_context(patch.dict(os.environ))
        torch.set_default_dtype(torch.float32)
        if threads is not None:
            torch.set_num_threads(threads)
        if torch.cuda.is_available():
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # products of matrices are deterministic then
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed)
            torch.manual_seed(seed)
            torch.backends.cudnn.benchmark = False
        yield
