"""Functions in several processes that are joined by gloo, as ``torchrun`` would start them."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.end_to_end import killable
from tllib_ancon.training import devices


def run(function: Callable[..., Any], world_size: int, *args: Any, folder: Path) -> list[Any]:
    """What ``function(*args)`` returns in each of ``world_size`` processes: a value that ``torch.save`` takes."""
    launch = (world_size, killable.free_port(), folder, function, args)
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([killable.__name__])
    processes = [server.Process(target=_one, args=(rank, *launch)) for rank in range(world_size)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * world_size
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(world_size)]


def _one(
    rank: int, world_size: int, port: int, folder: Path, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": world_size}
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in {**ranks, **place}.items()})
    devices.join()
    torch.save(function(*args), folder / f"{rank}.pt")
    devices.leave()
