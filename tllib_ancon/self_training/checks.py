"""What parts of a method accept: numbers by their signatures, visits by their shapes; no step waits for a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, wraps
from inspect import Parameter, signature
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, get_origin, get_type_hints

import torch
from torch import Tensor, nn

from tllib_ancon.config.settings import Settings, settings_class
from tllib_ancon.runtime.errors import UserError

P = ParamSpec("P")
R = TypeVar("R")


def validated(function: Callable[P, R]) -> Callable[P, R]:
    """The function with some arguments checked: those annotated as ``Annotated[float, Ge(0)]``, ``Literal`` or bool."""
    shape = signature(function)

    @cache
    def arguments_class() -> type[Settings]:
        kinds = get_type_hints(function, include_extras=True)
        fields: dict[str, Any] = {}
        for name, parameter in shape.parameters.items():
            kind = kinds.get(name)
            if kind is bool or get_origin(kind) in (Annotated, Literal):
                default = ... if parameter.default is Parameter.empty else parameter.default
                fields[name] = (kind, default)
        return settings_class("Arguments", **fields)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = shape.bind(*args, **kwargs)
        checked_names = bound.arguments.keys() & arguments_class().model_fields.keys()
        checked = arguments_class()(**{name: bound.arguments[name] for name in checked_names})
        for name in checked_names:
            bound.arguments[name] = getattr(checked, name)
        return function(*bound.args, **bound.kwargs)

    return call


class FixedPrecision(nn.Module):
    """A module whose buffers keep their dtypes under ``.half()``, ``.double()`` and ``.to(dtype)``, so that votes and
    moving averages stay exact."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FixedPrecision:
        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        super()._apply(move, recurse)  # type: ignore[no-untyped-call]
        return self


def check_visit(indices: Tensor, logits: Tensor, sizes: Sequence[int], features: Tensor | None = None) -> None:
    """Raise :class:`UserError` unless shapes and types are those of a visit, (B,), (B, K) and, with features, (B, D),
    where the sizes are N, K and D."""
    num_samples, num_classes, *width = sizes
    check_logits(logits)
    check_tensor("indices", indices)
    if logits.shape[1] != num_classes or not logits.is_floating_point():
        raise UserError(
            f"logits have shape {tuple(logits.shape)} and dtype {logits.dtype}",
            f"expected (batch, {num_classes}) of a floating type",
        )
    if indices.shape != logits.shape[:1]:
        raise UserError(
            f"indices have shape {tuple(indices.shape)}", f"expected ({logits.shape[0]},), one per row of logits"
        )
    check_indices(indices, num_samples)
    if features is not None:
        check_tensor("features", features)
        expected = len(logits), *width
        if features.shape != expected:
            raise UserError(f"features have shape {tuple(features.shape)}", f"expected {expected}")


def check_indices(indices: Tensor, num_samples: int) -> None:
    """Raise :class:`UserError` unless ``indices`` are int64 or int32 in [0, num_samples). The range is checked on the
    CPU alone: on a device that would stall every step."""
    if indices.dtype not in (torch.int64, torch.int32):  # indexing takes uint8 for a mask, and no other integers
        raise UserError(f"indices have dtype {indices.dtype}", "expected int64 or int32")
    if not indices.is_cpu:
        return
    outside = [index for index in indices.tolist() if not 0 <= index < num_samples]
    if outside:
        raise UserError(
            f"index {outside[0]} is outside [0, {num_samples}): num_samples must be the size of the whole target set "
            "and every index the position of its image in it"
        )


def check_logits(logits: Tensor) -> None:
    check_tensor("logits", logits)
    if logits.ndim != 2:
        raise UserError(f"logits have shape {tuple(logits.shape)}", "expected (batch, classes)")


def check_tensor(name: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise UserError(
            f"{name} are a {type(value).__name__}", f"expected a torch.Tensor, e.g. torch.as_tensor({name})"
        )


def as_weights(targets: Tensor, logits: Tensor) -> Tensor:
    """The targets of a loss, such weights or (B,) integer classes, as weights (B, K) float32 without gradient."""
    check_logits(logits)
    check_tensor("targets", targets)
    if targets.shape == logits.shape:
        return targets.detach().float()
    batch, num_classes = logits.shape
    if targets.shape != (batch,) or targets.is_floating_point() or targets.is_complex():
        raise UserError(
            f"targets have shape {tuple(targets.shape)} and dtype {targets.dtype}",
            f"expected ({batch}, {num_classes}) weights or ({batch},) integer classes",
        )
    if targets.device.type == "cpu" and batch and not 0 <= int(targets.min()) <= int(targets.max()) < num_classes:
        raise UserError(f"a target lies outside [0, {num_classes}), the classes of the logits", "check the labels")
    return torch.nn.functional.one_hot(targets.long(), num_classes).float()


PROBABILITIES = (
    "the logits look like probabilities (each row lies in [0, 1] and sums to 1): give what the network returns before "
    "its softmax"
)


def are_probabilities(logits: Tensor) -> bool:
    """Whether each of several rows (B, K) lies in [0, 1] and sums to 1."""
    bounded = (logits >= 0).all() & ((logits.sum(1) - 1).abs() < 1e-3).all()
    return logits.numel() > len(logits) and bool(bounded)


def finite_rows(*outputs: Tensor) -> Tensor:
    """(B,) bool: rows (B, K) without NaN and without +infinity; a class may have a logit of -infinity."""
    return torch.cat(outputs, 1).amax(1) < torch.inf
