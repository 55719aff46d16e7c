"""What parts of a method accept: numbers by their signatures, visits by their shapes; no step waits for a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from inspect import signature
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, get_origin, get_type_hints

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn

from tllib_ancon.errors import UserError
from tllib_ancon.settings import Settings, settings_class

P = ParamSpec("P")
R = TypeVar("R")

Size = Annotated[int, Ge(1)]
Share = Annotated[float, Ge(0), Le(1)]


@dataclass(frozen=True)
class Option:
    """What makes a parameter a setting of methods, stated in its annotation; ``description`` is the help text."""

    description: str
    name: str = ""  # of the setting, where not the parameter's
    read_if: tuple[str, str] | None = None  # another setting and its value, without which this one has no effect


def annotated(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Parameter -> annotation and default, of those whose annotation says choices, a range or an :class:`Option`."""
    function = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    kinds, parameters = get_type_hints(function, include_extras=True), signature(function).parameters
    return {
        name: (kinds[name], ... if parameter.default is parameter.empty else parameter.default)
        for name, parameter in parameters.items()
        if get_origin(kinds.get(name)) in (Annotated, Literal)
    }


def validated(function: Callable[P, R]) -> Callable[P, R]:
    """The function with its arguments checked by their annotations, as ``Annotated[float, Ge(0)]``."""
    shape = signature(function)

    @cache
    def arguments() -> type[Settings]:
        return settings_class("Arguments", **annotated(function))

    @wraps(function)
    def call(*args: Any, **given: Any) -> R:
        bound = shape.bind(*args, **given)
        own = {name: value for name, value in bound.arguments.items() if name in arguments().model_fields}
        checked = arguments()(**own)
        bound.arguments.update((name, getattr(checked, name)) for name in own)
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
            f"logits have shape {tuple(logits.shape)} and dtype {logits.dtype}; expected (batch, {num_classes}) of a "
            "floating type"
        )
    if indices.shape != logits.shape[:1]:
        raise UserError(
            f"indices have shape {tuple(indices.shape)}; expected ({logits.shape[0]},), one per row of logits"
        )
    check_indices(indices, num_samples)
    if features is not None:
        check_tensor("features", features)
        expected = len(logits), *width
        if features.shape != expected:
            raise UserError(f"features have shape {tuple(features.shape)}; expected {expected}")


def check_indices(indices: Tensor, num_samples: int) -> None:
    """Raise :class:`UserError` unless ``indices`` are int64 or int32 in [0, num_samples). The range is checked on the
    CPU alone: on a device that would stall every step."""
    if indices.dtype not in (torch.int64, torch.int32):  # indexing takes uint8 for a mask, and no other integers
        raise UserError(f"indices have dtype {indices.dtype}; expected int64 or int32")
    outside = [index for index in indices.tolist() if not 0 <= index < num_samples] if indices.is_cpu else []
    if outside:
        raise UserError(
            f"index {outside[0]} is outside [0, {num_samples}): num_samples must be the size of the whole target set "
            "and every index the position of its image in it"
        )


def check_logits(logits: Tensor) -> None:
    check_tensor("logits", logits)
    if logits.ndim != 2:
        raise UserError(f"logits have shape {tuple(logits.shape)}; expected (batch, classes)")


def check_tensor(name: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise UserError(f"{name} are a {type(value).__name__}; expected a torch.Tensor, e.g. torch.as_tensor({name})")


def as_weights(targets: Tensor, logits: Tensor) -> Tensor:
    """The targets of a loss, such weights or (B,) integer classes, as weights (B, K) float32 without gradient."""
    check_logits(logits)
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
        raise UserError(f"a target lies outside [0, {num_classes}), the classes of the logits; check the labels")
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
