"""The state of everything random and everything that learns, as plain values and tensors."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Protocol, cast

import numpy as np
import torch

from tllib_ancon.errors import UserError, one_line
from tllib_ancon.self_training import processes
from tllib_ancon.training.launch import collect

OTHERS = "others"
PRIVATE_PARTS = ("method",)
"""Parts that may differ from process to process."""


class Stateful(Protocol):
    """A model, an optimiser, a schedule, a method, a gradient scaler."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> Any: ...


def take_snapshot(parts: Mapping[str, Stateful]) -> dict[str, Any]:
    """The state of ``parts`` and of the generators of Python, NumPy and torch (on every device that it uses).

    It holds tensors, numbers, strings and their lists and dicts alone, so that reading it back runs no code. Of many
    processes the first gets with its own what is different in the others, and these get their own alone.
    """
    own = _generators() | {"parts": {part: stateful.state_dict() for part, stateful in parts.items()}}
    if processes.world_size() == 1:
        return own
    private = own | {"parts": {name: _on_cpu(part) for name, part in own["parts"].items() if name in PRIVATE_PARTS}}
    first, *others = collect(private) or [private]
    return own | {OTHERS: [other | {"parts": _differing(other["parts"], first["parts"])} for other in others]}


def restore_snapshot(parts: Mapping[str, Stateful], snapshot: Mapping[str, Any]) -> None:
    """Put ``parts`` and the generators into the state that :func:`take_snapshot` saw in this process.

    Args:
        snapshot: what the first process got

    Raises:
        UserError: a part of the snapshot does not fit (why), as where another version of this program made it
    """
    own = [snapshot, *snapshot.get(OTHERS, [])][processes.rank()]
    for name, stateful in parts.items():
        try:
            state = snapshot["parts"][name]
            stateful.load_state_dict(state | own["parts"][name] if name in PRIVATE_PARTS else state)
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise UserError(
                f"the kept state of this run does not fit its {name} ({type(error).__name__}: {one_line(error)}); did "
                "another version of this program write it? Finish the run with that one, or pass `overwrite=True` to "
                "start it anew"
            ) from error
    _restore_generators(own)


def _generators() -> dict[str, Any]:
    version, python_state, gauss = random.getstate()
    name, keys, *numpy_state = cast(tuple[Any, ...], np.random.get_state())
    return {
        "python": [version, list(python_state), gauss],
        "numpy": [name, keys.tolist(), *numpy_state],
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state(device) for device in _gpus()],
    }


def _restore_generators(states: Mapping[str, Any]) -> None:
    version, python_state, gauss = states["python"]
    random.setstate((version, tuple(python_state), gauss))
    name, keys, *numpy_state = states["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *numpy_state))
    torch.set_rng_state(states["torch"])
    for device, state in zip(_gpus(), states["cuda"], strict=False):
        torch.cuda.set_rng_state(state, device)


def _gpus() -> list[int]:
    """Those that this process uses: all, or of many processes its own."""
    if not torch.cuda.is_available():
        return []
    return list(range(torch.cuda.device_count())) if processes.world_size() == 1 else [torch.cuda.current_device()]


def _on_cpu(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.cpu() if isinstance(value, torch.Tensor) else value for name, value in state.items()}


def _differing(parts: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The parts of another process without the tensors that are the first one's too, as a memory of all samples is."""
    return {
        part: {name: value for name, value in state.items() if not _equal(value, first[part].get(name))}
        for part, state in parts.items()
    }


def _equal(value: Any, other: Any) -> bool:
    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    return value.dtype == other.dtype and torch.equal(value, other)
