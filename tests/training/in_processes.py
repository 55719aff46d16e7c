"""Functions in several processes that are joined by gloo, as ``torchrun`` would start them."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tllib_ancon.training import launch


def run(function: Callable[..., Any], world_size: int, *args: Any, folder: Path) -> list[Any]:
    """What ``function(*args)`` returns in each of ``world_size`` processes: a value that ``torch.save`` takes."""
    context = multiprocessing.get_context("spawn")
    port = free_port()
    processes = [
        context.Process(target=_one, args=(rank, world_size, port, folder, function, args))
        for rank in range(world_size)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * world_size
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(world_size)]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _one(
    rank: int, world_size: int, port: int, folder: Path, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world_size),
        LOCAL_WORLD_SIZE=str(world_size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        OMP_NUM_THREADS="1",
    )
    launch.join()
    torch.save(function(*args), folder / f"{rank}.pt")
    launch.leave()
