"""One seed for everything random, and one order for sums."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from tllib_ancon.errors import UserError
from tllib_ancon.self_training import processes

LARGEST_SEED = 2**32 - 1


def make_reproducible(seed: int, deterministic: bool = False) -> None:
    """Seed the generators of Python, NumPy and torch on every device; samplers and workers have their own seeds.

    Args:
        seed: in [0, 2^32 - 1], NumPy's range
        deterministic: choose the algorithms that give the same numbers each time; on a CPU they do anyway, on a GPU an
            operation without such an algorithm is an error. Default: False

    Raises:
        UserError: a seed out of range
    """
    if not 0 <= seed <= LARGEST_SEED:
        raise UserError(f"`seed` {seed} is out of range; it must be at least 0 and at most {LARGEST_SEED}")
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(deterministic)
    torch.backends.cudnn.benchmark = False


def separate_noise(seed: int) -> None:
    """Give each of many processes noise of its own, such as dropout's; the first one's stays as it is."""
    if processes.rank() > 0:
        torch.manual_seed(seed + processes.rank())


@contextmanager
def using_threads(number: int | None) -> Iterator[None]:
    """In this context PyTorch uses so many threads on the CPU: their number decides in which order sums are taken.

    Args:
        number: None: as many as before
    """
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
