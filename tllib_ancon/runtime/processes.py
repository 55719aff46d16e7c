"""The processes of a launch: how they join, and sums, means and rows of all of them.

With one process each function returns what it is given, and nothing else happens. With more, every process calls the
same functions in the same order. Batches of all processes are equally large, so a mean of their means is the mean of
all samples.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from threading import Thread
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, distributed

from tllib_ancon.runtime.errors import BAD_INPUT, UserError, in_words
from tllib_ancon.runtime.text import say

PATIENCE = 5.0
"""Seconds after which a process says that it waits for the others."""

_stores: list[Any] = []
"""Where the processes that have joined meet; empty before."""

Arguments = ParamSpec("Arguments")
Outcome = TypeVar("Outcome")


def world_size() -> int:
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return 1


def rank() -> int:
    if world_size() == 1:
        return 0
    return distributed.get_rank()


def launched() -> int:
    """How many processes were started for this run, joined or not."""
    if "RANK" in os.environ:
        return int(os.environ.get("WORLD_SIZE", 1))
    return world_size()


def join() -> None:
    """Connect to the other processes of the launch, if there are any: tensors on a CPU by gloo, on a GPU by NCCL.

    PyTorch waits for them where no signal reaches it. Here a thread waits, so that SIGTERM and Ctrl-C end the process.
    """
    if launched() == 1 or world_size() > 1:
        return
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        backend = "cpu:gloo,cuda:nccl"
    connection: Future[None] = Future()
    Thread(target=_connect, args=(backend, connection), daemon=True).start()
    if wait([connection], PATIENCE).not_done:
        say(
            f"process {os.environ['RANK']} of {launched()} still waits for the others at {os.environ['MASTER_ADDR']}:"
            f"{os.environ['MASTER_PORT']}; start them with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE. For a run "
            "in one process unset RANK",
            file=sys.stderr,
        )
    connection.result()


def _connect(backend: str, connection: Future[None]) -> None:
    from torch.distributed.rendezvous import rendezvous  # which few runs need

    try:
        store, rank, size = next(rendezvous("env://"))
        distributed.init_process_group(backend, store=store, rank=rank, world_size=size)
        _stores.append(store)
    except Exception as error:  # which the main thread raises
        connection.set_exception(error)
    else:
        connection.set_result(None)


def tells() -> bool:
    """Whether this process tells its error: the first of a launch that asks. Others may have met the same one."""
    if not _stores:  # before they join, all processes meet the same errors
        return os.environ["RANK"] == "0"
    try:
        return bool(_stores[0].add("told", 1) == 1)
    except RuntimeError:  # the main process has ended, with an error that it told
        return False


def leave() -> None:
    if world_size() > 1:
        distributed.destroy_process_group()


def is_main() -> bool:
    return rank() == 0


def on_main(function: Callable[Arguments, Outcome]) -> Callable[Arguments, Outcome]:
    """Decorate a function that the main process calls for all: each gets what it returns, or its error."""

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Outcome:
        if world_size() == 1:
            return function(*args, **kwargs)
        message: list[Any] = [None, None]
        if is_main():
            try:
                message[0] = function(*args, **kwargs)
            except BAD_INPUT as error:
                message[1] = in_words(error)
        distributed.broadcast_object_list(message, src=0)
        outcome: Outcome
        outcome, refusal = message
        if refusal is not None:
            raise UserError(refusal)
        return outcome

    return call


def collect(value: Any) -> list[Any]:
    """The values of all processes, on the main one; elsewhere the list means nothing. Their tensors are on the CPU."""
    values: list[Any] = [value] * world_size()
    if world_size() > 1:
        distributed.gather_object(value, values if is_main() else None, dst=0)
    return values


def is_lost_connection(error: BaseException) -> bool:
    words = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")
    return world_size() > 1 and any(word in str(error) for word in words)


def total(value: Tensor) -> Tensor:
    """Sum over processes of tensors of one shape, on each of them.

    Its gradient is that of the sum of all processes' losses: with L_s the loss of process s and y the total, :math:`∂
    Σ_s L_s / ∂x_r = Σ_s ∂L_s / ∂y`. Averaging the parameters' gradients over processes, as DistributedDataParallel
    does, then makes it that of the mean loss.
    """
    if world_size() == 1:
        return value
    from torch.distributed.nn import all_reduce  # which few runs need

    summed: Tensor = all_reduce(value)  # type: ignore[no-untyped-call]
    return summed


def mean(value: Tensor) -> Tensor:
    """Mean over processes of tensors of one shape, on each of them; differentiable as :func:`total`."""
    return total(value) / world_size()


def gather(rows: Tensor) -> Tensor:
    """The rows of all processes, (B, …) -> (W B, …), those of the first process first; without gradient."""
    if world_size() == 1:
        return rows
    everyone = [torch.empty_like(rows, memory_format=torch.contiguous_format) for _ in range(world_size())]
    distributed.all_gather(everyone, rows.detach().contiguous())
    return torch.cat(everyone)


def interleave(rows: Tensor) -> Tensor:
    """:func:`gather` in another order: row i of process r becomes row i W + r, as a :class:`Shard` has it."""
    return gather(rows).view(world_size(), *rows.shape).transpose(0, 1).flatten(0, 1)


def broadcast(tensors: Iterable[Tensor]) -> None:
    """Overwrite these tensors with those of the first process."""
    if world_size() > 1:
        for tensor in tensors:
            distributed.broadcast(tensor, src=0)


@dataclass(frozen=True)
class Shard:
    """The samples that one process visits, and whose state it keeps: every W-th of N, from its rank on."""

    num_samples: int  # N
    rank: int = 0
    world_size: int = 1  # W

    @classmethod
    def of_this_process(cls, num_samples: int) -> Shard:
        return cls(num_samples, rank(), world_size())

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def positions(self) -> range:
        """Positions of the shard's samples among all N; the sample in row i of the shard is at ``positions[i]``."""
        return range(self.rank, self.num_samples, self.world_size)

    @property
    def padded_positions(self) -> Sequence[int]:
        """``positions``, the last one repeated where others have one more; :func:`interleave` restores their order."""
        rows = math.ceil(self.num_samples / self.world_size)
        positions = self.positions or [0]
        if len(positions) < rows:
            return [*positions, positions[-1]]
        return positions

    def rows(self, positions: Tensor) -> Tensor:
        """Positions among all N of samples in the shard -> their rows in it."""
        return positions // self.world_size
