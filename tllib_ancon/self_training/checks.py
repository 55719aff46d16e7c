"""What parts of a method accept as tensors: the shapes and types of a visit; no step waits for a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.runtime.errors import BadSetting, UserError, named

INDEX_TYPES = (torch.int64, torch.int32)
"""Indexing takes uint8 for a mask, and no other integers."""


class FixedPrecision(nn.Module):
    """A module whose buffers keep their dtypes under ``.half()``, ``.double()`` and ``.to(dtype)``, so that votes and
    moving averages stay exact."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FixedPrecision:
        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        super()._apply(move, recurse)  # type: ignore[no-untyped-call]
        return self


def check_tensor(name: str, value: Any, shape: Sequence[int | str], integers: bool = False) -> None:
    """Raise :class:`UserError` unless the value is a tensor of this shape and type. In the shape a letter stands for
    any length. The type is a floating one or, for integers, int64 or int32."""
    received = f"are a {type(value).__name__}"
    if isinstance(value, Tensor):
        has_type = value.dtype in INDEX_TYPES if integers else value.is_floating_point()
        if has_type and _has_shape(value, shape):
            return
        received = f"have shape {tuple(value.shape)} and dtype {value.dtype}"
    kind = "int64 or int32" if integers else "a floating type"
    lengths = ", ".join(map(str, shape))
    raise UserError(f"{name} {received}", f"expected a torch.Tensor of shape ({lengths}) and {kind}")


def _has_shape(tensor: Tensor, shape: Sequence[int | str]) -> bool:
    if tensor.ndim != len(shape):
        return False
    lengths = zip(shape, tensor.shape, strict=True)
    return all(isinstance(expected, str) or expected == length for expected, length in lengths)


def check_integers(name: str, value: Any, num_rows: int | str, bound: int) -> None:
    """Raise :class:`UserError` unless these are integers (B,) in [0, bound). The range is checked on the CPU alone: on
    a device that would stall every step."""
    check_tensor(name, value, (num_rows,), integers=True)
    if not value.is_cpu:
        return
    outside = value[(value < 0) | (value >= bound)]
    if len(outside):
        raise UserError(f"{name} must be at least 0 and below {bound}, got {outside[0]}")


def check_visit(indices: Tensor, logits: Tensor, sizes: Sequence[int], features: Tensor | None = None) -> None:
    """Raise :class:`UserError` unless shapes and types are those of a visit, (B,), (B, K) and, with features, (B, D),
    where the sizes are N, K and D."""
    num_samples, num_classes, *width = sizes
    check_tensor("logits", logits, ("B", num_classes))
    check_integers("indices", indices, len(logits), num_samples)
    if features is not None:
        check_tensor("features", features, (len(logits), *width))


def require_steps(name: str, value: object, total_steps: int | None) -> None:
    """Raise an error for a setting that follows the steps of the whole training where their number is not known."""
    if total_steps is None:
        raise BadSetting(
            f"{named(name, value)} needs {named('total_steps')}",
            "pass the number of steps of the whole training",
            setting=name,
        )


def check_logits(logits: Tensor) -> None:
    check_tensor("logits", logits, ("B", "K"))


def as_weights(targets: Any, logits: Tensor) -> Tensor:
    """The targets of a loss, weights (B, K) or (B,) integer classes, as weights (B, K) float32 without gradient."""
    check_logits(logits)
    batch, num_classes = logits.shape
    if isinstance(targets, Tensor) and targets.shape == logits.shape:
        return targets.detach().float()
    check_integers("targets", targets, batch, num_classes)
    return torch.nn.functional.one_hot(targets.long(), num_classes).float()


def finite_rows(*outputs: Tensor) -> Tensor:
    """(B,) bool: rows (B, K) without NaN and without +infinity; a class may have a logit of -infinity."""
    return torch.cat(outputs, 1).amax(1) < torch.inf
