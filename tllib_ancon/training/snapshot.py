"""The state of everything random and everything that learns, as plain values and tensors."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch


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
