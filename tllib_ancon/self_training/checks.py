"""What the parts of a method accept; no check of a step waits for a device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from tllib_ancon.errors import UserError, unknown_name
from tllib_ancon.settings import Spec, check, converted

INDEX_DTYPES = (torch.int64, torch.int32)
"""Indexing takes uint8 for a mask, and no other integers."""


def size(name: str, value: Any) -> int:
    """A number of samples, classes or features: whole, and at least 1.

    Raises:
        UserError: another value
    """
    number: int = converted(name, value, int)
    check(name, number, Spec("", at_least=1))
    return number


def number(name: str, value: Any, **bounds: float) -> float:
    """A finite number within ``at_least``, ``above``, ``at_most`` and ``below``.

    Raises:
        UserError: another value
    """
    found: float = converted(name, value, float)
    check(name, found, Spec("", **bounds))  # type: ignore[arg-type]
    return found


def choice(name: str, value: Any, choices: Iterable[str]) -> str:
    """One of these names.

    Raises:
        UserError: another value, with the nearest name
    """
    if value not in choices:
        raise unknown_name(name, str(value), choices)
    return str(value)


def check_visit(indices: Tensor, logits: Tensor, num_samples: int, num_classes: int) -> None:
    """Raise :class:`UserError` unless ``indices`` is (B,) within ``[0, num_samples)`` and ``logits`` is (B, K).

    The range is checked when the indices are on the CPU, where a loader delivers them; on a device the
    check would stall every step, and the indexing kernel itself stops on a bad index.
    """
    check_tensor("logits", logits)
    check_tensor("indices", indices)
    if logits.shape[1:] != (num_classes,) or not logits.is_floating_point():
        raise UserError(
            f"logits have shape {tuple(logits.shape)} and dtype {logits.dtype}; expected (batch, {num_classes}) of a "
            "floating type"
        )
    if indices.shape != logits.shape[:1]:
        raise UserError(
            f"indices have shape {tuple(indices.shape)}; expected ({logits.shape[0]},), one per row of logits"
        )
    check_dtype(indices)
    if indices.is_cpu and len(indices):
        positions = indices.tolist()
        lowest, highest = min(positions), max(positions)
        if lowest < 0 or highest >= num_samples:
            raise _outside(num_samples, f"index {lowest if lowest < 0 else highest} is")


def check_tensor(name: str, value: Any) -> None:
    """Raise :class:`UserError` unless ``value`` is a tensor."""
    if not isinstance(value, Tensor):
        raise UserError(f"{name} are a {type(value).__name__}; expected a torch.Tensor, e.g. torch.as_tensor({name})")


def check_dtype(indices: Tensor) -> None:
    """Raise :class:`UserError` unless ``indices`` are int64 or int32."""
    if indices.dtype not in INDEX_DTYPES:
        raise UserError(f"indices have dtype {indices.dtype}; expected int64 or int32")


def check_indices(indices: Tensor, num_samples: int) -> None:
    """Raise :class:`UserError` unless ``indices`` are int64 or int32 in [0, num_samples). It waits for a device."""
    check_dtype(indices)
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < num_samples:
        raise _outside(num_samples, "an index lies")


def check_features(features: Tensor, batch: int, feature_dim: int) -> None:
    """Raise :class:`UserError` unless ``features`` is (batch, feature_dim)."""
    check_tensor("features", features)
    if features.shape != (batch, feature_dim):
        raise UserError(f"features have shape {tuple(features.shape)}; expected ({batch}, {feature_dim})")


def check_logits(logits: Tensor) -> None:
    """Raise :class:`UserError` unless ``logits`` is (batch, classes)."""
    check_tensor("logits", logits)
    if logits.ndim != 2:
        raise UserError(f"logits have shape {tuple(logits.shape)}; expected (batch, classes)")


def as_weights(targets: Tensor, logits: Tensor) -> Tensor:
    """The targets of a loss as each class's weight, (B, K) float32 without gradient.

    Args:
        targets: such weights, or (B,) integer classes
        logits: (B, K)

    Raises:
        UserError: another shape or type; on the CPU, where the check is free, a class outside [0, K)
    """
    check_tensor("targets", targets)
    if targets.shape == logits.shape:
        return targets.detach().float()
    batch, num_classes = logits.shape
    if targets.shape != (batch,) or targets.is_floating_point() or targets.is_complex():
        raise UserError(
            f"targets have shape {tuple(targets.shape)} and dtype {targets.dtype}; "
            f"expected ({batch}, {num_classes}) weights or ({batch},) integer classes"
        )
    if targets.device.type == "cpu" and batch and not 0 <= int(targets.min()) <= int(targets.max()) < num_classes:
        raise UserError(f"a target lies outside [0, {num_classes}), the classes that the logits have")
    return torch.nn.functional.one_hot(targets.long(), num_classes).float()


def finite_rows(*outputs: Tensor) -> Tensor:
    """(B,) bool: the rows (B, K) without NaN and without +infinity in any of these; a class may have a logit of
    -infinity."""
    finite = outputs[0].amax(1) < torch.inf
    for other in outputs[1:]:
        finite = finite & (other.amax(1) < torch.inf)
    return finite


def _outside(num_samples: int, which: str) -> UserError:
    return UserError(
        f"{which} outside [0, {num_samples}): num_samples must be the size of the whole target set and every index the "
        "position of its image in it"
    )
