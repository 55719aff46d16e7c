"""The state of everything random and everything that learns, as plain values and tensors."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch

from tllib_ancon.self_training import processes
from tllib_ancon.training.launch import collect

OTHERS = "others"
OWN_PARTS = ("method",)
"""Parts whose state differs from process to process; that of the rest is the same in all."""


class Stateful(Protocol):
    """A model, an optimiser, a schedule, a method, a gradient scaler."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> Any: ...


def take_snapshot(parts: Mapping[str, Stateful]) -> dict[str, Any]:
    """The state of ``parts`` and of the generators of Python, NumPy and torch (all devices).

    It holds tensors, numbers, strings and their lists and dicts alone, so that reading it back runs no code.
    """
    version, python_state, gauss = random.getstate()
    name, keys, *numpy_state = np.random.get_state()
    return {
        "parts": {part: stateful.state_dict() for part, stateful in parts.items()},
        "python": [version, list(python_state), gauss],
        "numpy": [name, keys.tolist(), *numpy_state],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_snapshot(parts: Mapping[str, Stateful], snapshot: Mapping[str, Any]) -> None:
    """Put ``parts`` and the generators into the state that :func:`take_snapshot` saw."""
    for part, stateful in parts.items():
        stateful.load_state_dict(snapshot["parts"][part])
    version, python_state, gauss = snapshot["python"]
    random.setstate((version, tuple(python_state), gauss))
    name, keys, *numpy_state = snapshot["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *numpy_state))
    torch.set_rng_state(snapshot["torch"])
    if snapshot["cuda"]:
        torch.cuda.set_rng_state_all(snapshot["cuda"])


def gather_snapshots(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """The first process's snapshot with what is different in the others, on the first process; elsewhere, its own.

    With one process it is the snapshot as it is.
    """
    own = {**snapshot, "parts": {name: part for name, part in snapshot["parts"].items() if name in OWN_PARTS}}
    others = collect(_on_cpu(own))[1:] if processes.world_size() > 1 else []
    return {**snapshot, OTHERS: others} if others else dict(snapshot)


def snapshot_of_this_process(gathered: Mapping[str, Any]) -> dict[str, Any]:
    """What :func:`gather_snapshots` got from this process, with the parts that are the same in all."""
    snapshot = dict(gathered)
    others = snapshot.pop(OTHERS, [])
    if processes.rank() == 0:
        return snapshot
    own = others[processes.rank() - 1]
    return {**own, "parts": {**snapshot["parts"], **own["parts"]}}


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.cpu()
    return {name: _on_cpu(entry) for name, entry in value.items()} if isinstance(value, Mapping) else value
