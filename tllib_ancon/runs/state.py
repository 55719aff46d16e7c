"""What a run needs to resume, as pairs of functions that write and read. Reading runs no code."""

import copy
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tllib_ancon.runs.files import write_whole
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.errors import named, reading
from tllib_ancon.runtime.types import State

DIFFERING_PARTS = ("method",)
"""Parts that differ from process to process."""
Array = npt.NDArray[Any]


class Stateful(Protocol):
    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> Any: ...


def start_again() -> str:
    return f"pass {named('overwrite', True)} to start the run again"


def other_version() -> str:
    return f"did another version of this program write it? Finish the run with that one, or {start_again()}"


def take_snapshot(parts: Mapping[str, Stateful]) -> State:
    """The state of ``parts`` and of all random generators; the main process also gets the parts of the others."""
    algorithm, keys, *numpy_state = cast(tuple[Any, ...], np.random.get_state())
    cuda_states = []
    if torch.cuda.is_available():
        cuda_states.append(torch.cuda.get_rng_state())
    snapshot: State = {
        "python": random.getstate(),
        "numpy": [algorithm, keys.tolist(), *numpy_state],
        "torch": torch.get_rng_state(),
        "cuda": cuda_states,
        "parts": {name: part.state_dict() for name, part in parts.items()},
    }
    if processes.world_size() == 1:
        return snapshot
    differing = {name: snapshot["parts"][name] for name in DIFFERING_PARTS if name in parts}
    snapshots = processes.collect(copy_to_cpu({**snapshot, "parts": differing}))
    return {**snapshot, "others": snapshots[1:]}


def restore_snapshot(parts: Mapping[str, Stateful], snapshot: State) -> None:
    """Put ``parts`` and the generators into the state of this process in the main process's snapshot."""
    with reading("the state of this run", "that of these settings", other_version()):
        of_this_process = [snapshot, *snapshot.get("others", [])][processes.rank()]
        for name, part in parts.items():
            state = snapshot["parts"][name]
            if name in DIFFERING_PARTS:
                state = {**state, **of_this_process["parts"][name]}
            part.load_state_dict(state)
        random.setstate(of_this_process["python"])
        np.random.set_state(tuple(of_this_process["numpy"]))
        torch.set_rng_state(of_this_process["torch"])
        if torch.cuda.is_available() and of_this_process["cuda"]:
            torch.cuda.set_rng_state(of_this_process["cuda"][0])


def copy_to_cpu(value: Any, _copies: dict[tuple[Any, ...], Tensor] | None = None) -> Any:
    """A copy that no later step changes, on the CPU. Tensors that share memory, as tied weights do, stay one."""
    copies = {} if _copies is None else _copies
    if isinstance(value, Tensor):
        memory = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride())
        if memory not in copies:
            copies[memory] = value.detach().to("cpu", copy=True)
        return copies[memory]
    if isinstance(value, list | tuple):
        return type(value)(copy_to_cpu(entry, copies) for entry in value)
    if isinstance(value, dict):
        mapping = copy.copy(value)  # with the versions of modules that a state dict carries
        for name, entry in value.items():
            mapping[name] = copy_to_cpu(entry, copies)
        return mapping
    return value


def write_state(path: Path, state: State) -> None:
    write_whole(path, lambda file: torch.save(state, file))


def read_state(path: Path) -> State:
    state: State = torch.load(path, map_location="cpu", weights_only=True)
    return state


def write_weights(path: Path, weights: State) -> None:
    write_state(path, dict(copy_to_cpu(weights)))


def write_arrays(path: Path, arrays: Mapping[str, Array | None]) -> None:
    defined: dict[str, Any] = {name: array for name, array in arrays.items() if array is not None}
    write_whole(path, lambda file: np.savez_compressed(file, **defined))


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, Array]:
    with reading(path, "arrays"), np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in names if name in arrays.files}
