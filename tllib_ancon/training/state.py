"""The state that a run continues from: everything random and everything that learns, sealed in a file."""

from __future__ import annotations

import copy
import hashlib
import io
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from tllib_ancon import processes
from tllib_ancon.errors import UserError, reading
from tllib_ancon.training.devices import collect
from tllib_ancon.training.files import sha256_of

SEAL = b"sha256:"
ANEW = "pass `overwrite=True` to start the run again"
OTHER_VERSION = f"; did another version of this program write it? Finish the run with that one, or {ANEW}"
OWN_PARTS = ("method",)
"""Parts that differ from process to process."""


class Stateful(Protocol):
    """A model, an optimiser, a schedule, a method, a gradient scaler."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> Any: ...


def take_snapshot(parts: Mapping[str, Stateful]) -> dict[str, Any]:
    """The state of ``parts`` and of the generators of Python, NumPy and torch (of the GPU that this process uses, too).
    It holds tensors, numbers, strings and their lists and dicts alone, so that reading it back runs no code. Of many
    processes the main process gets, beside its own, the generators and the method of each other one."""
    name, keys, *numpy_state = cast(tuple[Any, ...], np.random.get_state())
    own: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": [name, keys.tolist(), *numpy_state],
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state()] if torch.cuda.is_available() else [],
        "parts": {name: part.state_dict() for name, part in parts.items()},
    }
    if processes.world_size() == 1:
        return own
    differing = {name: part for name, part in own["parts"].items() if name in OWN_PARTS}
    return own | {"others": collect(copy_to_cpu(own | {"parts": differing}))[1:]}


def restore_snapshot(parts: Mapping[str, Stateful], snapshot: Mapping[str, Any]) -> None:
    """Put ``parts`` and the generators into the state that :func:`take_snapshot` saw in this process; every process
    gives the snapshot that the main one got."""
    kept = "the kept state of this run"
    with reading(kept, "its processes", OTHER_VERSION):
        own = [snapshot, *snapshot.get("others", [])][processes.rank()]
    for name, part in parts.items():
        with reading(kept, f"its {name}", OTHER_VERSION):
            state = snapshot["parts"][name]
            part.load_state_dict(state | own["parts"][name] if name in OWN_PARTS else state)
    with reading(kept, "its random generators", OTHER_VERSION):
        random.setstate(own["python"])
        np.random.set_state(tuple(own["numpy"]))
        torch.set_rng_state(own["torch"])
        if torch.cuda.is_available() and own["cuda"]:
            torch.cuda.set_rng_state(own["cuda"][0])


def copy_to_cpu(value: Any, _copied: dict[tuple[Any, ...], Tensor] | None = None) -> Any:
    """A snapshot, or a part of one, that no later step changes: its containers, and its tensors on the CPU. Tensors
    that are views of the same memory, as tied weights are, stay one."""
    copied = {} if _copied is None else _copied
    if isinstance(value, Tensor):
        place = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride())
        if place not in copied:
            copied[place] = value.detach().to("cpu", copy=True)
        return copied[place]
    if isinstance(value, list | tuple):
        return type(value)(copy_to_cpu(entry, copied) for entry in value)
    if isinstance(value, dict):
        same = copy.copy(value)  # with what a state dict says of its modules' versions
        same.update((name, copy_to_cpu(entry, copied)) for name, entry in value.items())
        return same
    return value


def write_sealed(file: BinaryIO, state: Mapping[str, Any]) -> None:
    """Write a file of ``torch.save`` with the SHA-256 of its bytes at its end, which ``torch.load`` ignores."""
    torch.save(state, file)
    file.seek(0)
    digest = sha256_of(file)
    file.write(SEAL + digest.encode())


def read_sealed(path: Path) -> dict[str, Any]:
    """What :func:`write_sealed` wrote, undamaged; no code of the file is run, whoever wrote it."""
    content, seal, digest = path.read_bytes().rpartition(SEAL)
    if not seal or digest != hashlib.sha256(content).hexdigest().encode():
        raise UserError(f"{path} is damaged: its checksum is wrong; restore it from a copy, or {ANEW}")
    state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return state
