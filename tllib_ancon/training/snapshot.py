"""The state of everything random and everything that learns, as plain values and tensors."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from tllib_ancon.errors import UserError, one_line
from tllib_ancon.self_training import processes
from tllib_ancon.training.launch import collect

OTHERS = "others"
PRIVATE_PARTS = ("method",)
"""Parts that may differ from process to process."""

LISTS = {"per_class_accuracy"}
"""Metrics that are lists."""

LARGEST = 2**53
"""Whole numbers up to here are floating-point numbers too."""


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


def copy_to_cpu(value: Any) -> Any:
    """A snapshot, or a part of one, that no later step changes: its containers, and its tensors on the CPU.

    Tensors that are views of the same memory, as tied weights are, stay one.
    """
    return _copy(value, {})


def _copy(value: Any, copied: dict[tuple[Any, ...], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        place = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride())
        if place not in copied:
            copied[place] = value.detach().to("cpu", copy=True)
        return copied[place]
    if isinstance(value, list | tuple):
        return type(value)(_copy(entry, copied) for entry in value)
    if isinstance(value, dict):
        same = copy.copy(value)  # with what a state dict says of its modules' versions
        same.update((name, _copy(entry, copied)) for name, entry in value.items())
        return same
    return value


def restore_snapshot(parts: Mapping[str, Stateful], snapshot: Mapping[str, Any]) -> None:
    """Put ``parts`` and the generators into the state that :func:`take_snapshot` saw in this process.

    Args:
        snapshot: what the first process got

    Raises:
        UserError: a part of the snapshot does not fit (why), as where another version of this program made it
    """
    with _fitting("processes"):
        own = [snapshot, *snapshot.get(OTHERS, [])][processes.rank()]
    for name, stateful in parts.items():
        with _fitting(name):
            state = snapshot["parts"][name]
            _restore(stateful, state | own["parts"][name] if name in PRIVATE_PARTS else state)
    with _fitting("random generators"):
        _restore_generators(own)


def require_numbers(metrics: Sequence[Mapping[str, Any]], names: Sequence[str], first: int) -> None:
    """Refuse kept metrics that a run would stumble over later.

    Args:
        metrics: of the epochs in their order, from the number ``first`` on
        names: what each of them needs

    Raises:
        UserError: an epoch is out of order, or has no such number (which)
    """
    with _fitting("metrics"):
        for epoch, line in enumerate(metrics, start=first):
            if line["epoch"] != epoch:
                raise ValueError(f"epoch {line['epoch']} in the place of {epoch}")
            for name in {*names, *line} - LISTS:
                if not isinstance(line.get(name), int | float):
                    raise ValueError(f"epoch {epoch} has no number {name!r}")


@contextmanager
def _fitting(part: str) -> Iterator[None]:
    """In this context an error says that this part of the kept state does not fit."""
    try:
        yield
    except (AttributeError, LookupError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(
            f"the kept state of this run does not fit its {part} ({type(error).__name__}: {one_line(error)}); did "
            "another version of this program write it? Finish the run with that one, or pass `overwrite=True` to "
            "start it anew"
        ) from error


def _restore(stateful: Stateful, state: dict[str, Any]) -> None:
    fresh = stateful.state_dict()
    _require_form("state", state, fresh)
    hidden = [name for name in state if name not in fresh and hasattr(stateful, name)]
    if hidden:
        raise ValueError(f"{hidden[0]} is no part of the state")
    stateful.load_state_dict(state)
    moments = getattr(stateful, "state", None)
    if isinstance(moments, Mapping):
        _require_moments(moments)


def _require_form(name: str, kept: Any, fresh: Any) -> None:
    """Raise unless what was kept is made as what a new part has: sizes, which may have grown, are for the part itself
    to compare."""
    if isinstance(fresh, Mapping):
        _require(isinstance(kept, Mapping), name, "a dict", kept)
        for key, value in fresh.items():
            if key in kept:
                _require_form(f"{name}.{key}", kept[key], value)
            elif not str(key).startswith("_"):  # what a version of torch keeps for itself
                raise ValueError(f"{name}.{key} is missing")
    elif isinstance(fresh, list | tuple):
        _require(isinstance(kept, list | tuple) and len(kept) == len(fresh), name, f"a list of {len(fresh)}", kept)
        for number, (item, new) in enumerate(zip(kept, fresh, strict=True)):
            _require_form(f"{name}[{number}]", item, new)
    elif isinstance(fresh, Tensor):
        strided = isinstance(kept, Tensor) and kept.layout == torch.strided
        _require(strided and kept.dtype == fresh.dtype, name, f"a tensor of {fresh.dtype}", kept)
    elif isinstance(fresh, float):
        number = isinstance(kept, int | float) and not isinstance(kept, bool)
        _require(number and abs(kept) < LARGEST and math.isfinite(kept), name, "a finite number", kept)
    elif isinstance(fresh, int) and not isinstance(fresh, bool):
        counts = isinstance(kept, int) and not isinstance(kept, bool)
        _require(counts and min(0, fresh) <= kept < LARGEST, name, "a whole number", kept)
    else:
        _require(type(kept) is type(fresh), name, f"a {type(fresh).__name__}", kept)


def _require(fits: bool, name: str, expected: str, kept: Any) -> None:
    if not fits:
        found = f"one of {kept.dtype}" if isinstance(kept, Tensor) else f"{type(kept).__name__} {one_line(kept)[:40]}"
        raise ValueError(f"{name} should be {expected}, not {found}")


def _require_moments(moments: Mapping[Any, Any]) -> None:
    """Raise unless what an optimiser remembers of each parameter has its shape."""
    for parameter, entries in moments.items():
        _require(isinstance(parameter, Tensor), "state", "that of a parameter", parameter)
        for name, moment in entries.items():
            if moment is not None and (moment.shape != parameter.shape or moment.dtype != parameter.dtype):
                raise ValueError(f"{name} of a parameter {tuple(parameter.shape)} has shape {tuple(moment.shape)}")


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
    if not 0 <= numpy_state[0] <= len(keys):
        raise ValueError(f"NumPy's generator cannot be at position {numpy_state[0]}")
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
    return {name: value.cpu() if isinstance(value, Tensor) else value for name, value in state.items()}


def _differing(parts: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The parts of another process without the tensors that are the first one's too, as a memory of all samples is."""
    return {
        part: {name: value for name, value in state.items() if not _equal(value, first[part].get(name))}
        for part, state in parts.items()
    }


def _equal(value: Any, other: Any) -> bool:
    if not isinstance(value, Tensor) or not isinstance(other, Tensor):
        return False
    return value.dtype == other.dtype and torch.equal(value, other)
