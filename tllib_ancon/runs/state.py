"""What a run needs to resume, as pairs of functions that write and read. Reading runs no code."""

import random
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch

from tllib_ancon.runtime import processes
from tllib_ancon.runtime.errors import named, reading
from tllib_ancon.runtime.types import State


def start_again() -> str:
    return f"pass {named('overwrite', True)} to start the run again"


def other_version() -> str:
    return f"did another version of this program write it? Finish the run with that one, or {start_again()}"


def take_snapshot(parts: Mapping[str, Any]) -> State:
    """The state of ``parts``, and of every process its random generators and its method, if it has one."""
    shared = {name: part.state_dict() for name, part in parts.items()}
    differing = {name: on_cpu(shared.pop(name)) for name in ("method",) if name in shared}
    algorithm, keys, *position = cast(tuple[Any, ...], np.random.get_state())
    of_this_process: State = {
        "python": random.getstate(),
        "numpy": [algorithm, keys.tolist(), *position],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
        "parts": differing,
    }
    return {"parts": shared, "processes": processes.collect(of_this_process)}


def restore_snapshot(parts: Mapping[str, Any], snapshot: State) -> None:
    """Put ``parts`` and the generators into the state of this process in the main process's snapshot."""
    with reading("the state of this run", "that of these settings", other_version()):
        of_this_process = snapshot["processes"][processes.rank()]
        states = snapshot["parts"] | of_this_process["parts"]
        for name, part in parts.items():
            part.load_state_dict(states[name])
        random.setstate(of_this_process["python"])
        np.random.set_state(tuple(of_this_process["numpy"]))
        torch.set_rng_state(of_this_process["torch"])
        if torch.cuda.is_available() and of_this_process["cuda"] is not None:
            torch.cuda.set_rng_state(of_this_process["cuda"])


def on_cpu(state: State) -> State:
    """A copy of a module's state that no later step changes, on the CPU."""
    copied = {name: value.to("cpu", copy=True) for name, value in state.items() if isinstance(value, torch.Tensor)}
    return state | copied
