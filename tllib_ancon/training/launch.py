"""The processes that ``torchrun`` or ``accelerate launch`` started for one run: how they join, speak and act as one."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

import torch
from torch import distributed

from tllib_ancon.errors import UserError
from tllib_ancon.self_training import processes

Arguments = ParamSpec("Arguments")
Outcome = TypeVar("Outcome")

SECONDS_TO_CONNECT = 5


def launched() -> int:
    """How many processes were started for this run; they need not have joined yet."""
    return int(os.environ.get("WORLD_SIZE", 1)) if "RANK" in os.environ else processes.world_size()


def join() -> None:
    """Connect to the other processes of the launch, if there are any: by gloo what is on a CPU, by NCCL what is on a
    GPU."""
    if launched() == 1 or processes.world_size() > 1:
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        distributed.init_process_group("cpu:gloo,cuda:nccl")
    else:
        distributed.init_process_group("gloo")


def leave() -> None:
    """Take leave of the other processes at the end of a run."""
    if processes.world_size() > 1:
        distributed.destroy_process_group()


def is_first() -> bool:
    """Whether this process speaks and writes for all."""
    return processes.rank() == 0


def settings() -> dict[str, int]:
    """What ``config.json`` says of a run in many processes: it continues in as many."""
    return {"processes": processes.world_size()} if processes.world_size() > 1 else {}


def on_first(function: Callable[Arguments, Outcome]) -> Callable[Arguments, Outcome]:
    """Decorate a function that the first process calls for all: each gets what it returns, or its UserError."""

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Outcome:
        if processes.world_size() == 1:
            return function(*args, **kwargs)
        outcome: list[Any] = [None, None]
        if is_first():
            try:
                outcome[0] = function(*args, **kwargs)
            except UserError as error:
                outcome[1] = str(error)
        distributed.broadcast_object_list(outcome, src=0)
        if outcome[1] is not None:
            raise UserError(outcome[1])
        returned: Outcome = outcome[0]
        return returned

    return call


def collect(value: Any) -> list[Any]:
    """The values of all processes, on the first one; elsewhere an empty list. Their tensors are on the CPU."""
    if processes.world_size() == 1:
        return [value]
    values = [None] * processes.world_size() if is_first() else None
    distributed.gather_object(value, values, dst=0)
    return values or []


def is_first_to_speak() -> bool:
    """Whether no other process of the launch has asked this before: so that what ends a run is said once, whichever
    process meets it, and whether or not they have joined."""
    if launched() == 1:
        return True
    try:
        store = distributed.TCPStore(  # type: ignore[attr-defined]
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            is_master=False,
            wait_for_workers=False,
            timeout=timedelta(seconds=SECONDS_TO_CONNECT),
        )
        return store.add(f"tllib-ancon has spoken {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", 1) == 1
    except (KeyError, RuntimeError):  # the process that kept count is gone
        return True


def is_lost_connection(error: BaseException) -> bool:
    """Whether this error of a collective says that another process ended."""
    words = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")
    return processes.world_size() > 1 and any(word in str(error) for word in words)
