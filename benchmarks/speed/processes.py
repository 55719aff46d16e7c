"""Images a second of the adaptation's step in two processes, against one."""

from __future__ import annotations

import multiprocessing
import socket
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from benchmarks.speed.step import BATCH, TrainingStep
from benchmarks.speed.timing import Row, in_turn, ratio, row
from tllib_ancon.training.precision import DATA_PARALLEL, keep_buffers

STEPS = 10
"""A round."""

WARMUP = 1


def measure(rounds: int = 15) -> list[Row]:
    """AnCon with the small CNN at 32² on the CPU, a batch of 64 and one thread in each process, joined by gloo.

    Other programs on the machine make the second process wait; processor time tells what a step costs more in two.
    """
    with ExitStack() as running:
        alone, pair = (running.enter_context(Team(size)) for size in (1, 2))
        seconds = in_turn({"alone": alone.steps, "pair": pair.steps}, rounds, WARMUP, time.perf_counter)
    return [
        row(
            "step of AnCon, small CNN at 32², CPU, 1 process", [STEPS * BATCH / s for s in seconds["alone"]], "images/s"
        ),
        ratio("images/s of 2 processes / of 1, batch 64 each", [2 * s for s in seconds["alone"]], seconds["pair"]),
        ratio("processor time of a step, each of 2 processes / 1", pair.processor[WARMUP:], alone.processor[WARMUP:]),
    ]


class Team:
    """Processes that make steps of one training together, each time they are asked.

    Args:
        size (int): how many

    Attributes:
        processor: processor seconds of the first process, each time
    """

    def __init__(self, size: int):
        context = multiprocessing.get_context("spawn")
        ends = [context.Pipe() for _ in range(size)]
        self.processor: list[float] = []
        self.connections = [ours for ours, _ in ends]
        address = f"tcp://127.0.0.1:{_free_port()}"
        self.processes = [
            context.Process(target=_member, args=(theirs, rank, size, address), daemon=True)
            for rank, (_, theirs) in enumerate(ends)
        ]

    def __enter__(self) -> Team:
        for process in self.processes:
            process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.terminate()
            process.join()

    def steps(self) -> None:
        for connection in self.connections:
            connection.send(STEPS)
        first, *_ = [connection.recv() for connection in self.connections]
        self.processor.append(first)


def _member(connection: Connection, rank: int, size: int, address: str) -> None:
    torch.set_num_threads(1)
    step = TrainingStep("ancon", "small_cnn", 32, torch.device("cpu"))
    if size > 1:
        distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=size)
        options: dict[str, Any] = {**DATA_PARALLEL}
        parallel: Any = keep_buffers(DistributedDataParallel(step.model, **options))
        step.model = parallel
    while True:
        steps = connection.recv()
        started = time.process_time()
        for _ in range(steps):
            step()
        connection.send(time.process_time() - started)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port
