"""Arguments of a function that are checked as settings are."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from inspect import signature
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, get_origin, get_type_hints

from tllib_ancon.config.settings import Settings, parts_of, settings_class

P = ParamSpec("P")
R = TypeVar("R")


def validated(function: Callable[P, R]) -> Callable[P, R]:
    """The function with some arguments checked: those annotated as ``Annotated[float, Ge(0)]``, ``Literal`` or bool."""
    shape = signature(function)

    @cache
    def arguments_class() -> type[Settings]:
        kinds = get_type_hints(function, include_extras=True)
        fields: dict[str, Any] = {}
        for name in shape.parameters:
            kind = kinds.get(name)
            if kind is bool or any(get_origin(part) in (Annotated, Literal) for part in parts_of(kind)):
                fields[name] = (kind, None)
        return settings_class("Arguments", **fields)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = shape.bind(*args, **kwargs)
        names = bound.arguments.keys() & arguments_class().model_fields.keys()
        checked = arguments_class()(**{name: bound.arguments[name] for name in names})
        bound.arguments.update({name: getattr(checked, name) for name in names})
        return function(*bound.args, **bound.kwargs)

    return call
