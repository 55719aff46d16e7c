"""What a setting is: a dataclass field with a type, a default, a range and a help text, checked on construction."""

from __future__ import annotations

import copy
import dataclasses
import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tllib_ancon.errors import UserError, unknown_name


@dataclass(frozen=True)
class Spec:
    """What is known about a setting beyond its type and its default.

    Attributes:
        help: one line: what it is, with its unit
        choices: the only values it may have
        at_least, above, at_most, below: bounds of a number, or of each number of a sequence
        flags: further spellings on the command line, such as ``-b``; the first is always ``--`` and the name
        metavar: stands for the value in the help text
        group: title under which the help text lists it
        common: one of the few settings that the short help text shows
        decides: whether it decides what a run computes; the others may change when a run is continued
        per_stage: of a command of two stages, each has its own value
        defaults: method -> its default, where that depends on the method; a method that is not named has no such
            setting
    """

    help: str
    choices: tuple[Any, ...] | None = None
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    flags: tuple[str, ...] = ()
    metavar: str | tuple[str, ...] | None = None
    group: str = ""
    common: bool = False
    decides: bool = True
    per_stage: bool = False
    defaults: Mapping[str, Any] | None = None

    @property
    def range(self) -> str:
        """The bounds in words, e.g. ``at least 0 and below 1``; empty where there are none."""
        bounds = (("at least", self.at_least), ("above", self.above), ("at most", self.at_most), ("below", self.below))
        return " and ".join(f"{words} {bound:.10g}" for words, bound in bounds if bound is not None)


def setting(
    default: Any = MISSING,
    help: str = "",
    *,
    factory: Callable[[], Any] | None = None,
    **spec: Any,
) -> Any:
    """A dataclass field that is a setting.

    Args:
        default: its value if none is given; a setting without one is required
        help: one line: what it is, with its unit
        factory: makes the default of a mutable type
        **spec: the other attributes of :class:`Spec`
    """
    metadata = {"spec": Spec(help, **spec)}
    if factory is not None:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def redefined(owner: type, name: str, default: Any = None, **changes: Any) -> Any:
    """The setting of a base class with another default or other attributes of its :class:`Spec`, for a subclass."""
    described = dataclasses.replace(spec(settings_of(owner)[name]), **changes)
    return dataclasses.field(default=default, metadata={"spec": described})


def spec(field: Field[Any]) -> Spec:
    """The :class:`Spec` of a field that :func:`setting` made."""
    described: Spec = field.metadata["spec"]
    return described


def grouped(field: Field[Any], group: str) -> Field[Any]:
    """The same setting, listed under this title if it has none."""
    if spec(field).group:
        return field
    listed = copy.copy(field)
    listed.metadata = types.MappingProxyType({"spec": dataclasses.replace(spec(field), group=group)})
    return listed


def settings_of(owner: type) -> dict[str, Field[Any]]:
    """Name -> field of every setting of a dataclass."""
    return {field.name: field for field in dataclasses.fields(owner) if "spec" in field.metadata}


@cache
def types_of(owner: Any) -> dict[str, Any]:
    """Name -> type of every field of a dataclass."""
    return get_type_hints(owner)


def default_of(field: Field[Any]) -> Any:
    """The default of a setting; ``dataclasses.MISSING`` if it is required."""
    return field.default_factory() if field.default_factory is not MISSING else field.default


class Settings:
    """Base of frozen dataclasses of settings: their values are converted and checked on construction.

    Raises:
        UserError: a value of another type, out of range or not among the choices. The message has the setting's name in
            backticks; the command line shows its flag in that place
    """

    def __post_init__(self) -> None:
        owner: Any = type(self)
        kinds = types_of(owner)
        for name, field in settings_of(owner).items():
            if spec(field).defaults is not None and getattr(self, name) is None:
                continue  # no setting of this method
            value = converted(name, getattr(self, name), kinds[name])
            check(name, value, spec(field))
            object.__setattr__(self, name, value)


def converted(name: str, value: Any, kind: Any) -> Any:
    """The value as this type: whole numbers become floats, sequences tuples, where nothing is lost by it.

    Raises:
        UserError: a value of another type
    """
    for candidate in _candidates(kind):
        found = _as(candidate, value)
        if found is not _NO:
            return found
    raise UserError(f"`{name}` must be {described(kind)}, got {value!r}")


def check(name: str, value: Any, spec: Spec) -> None:
    """Refuse a value out of range or not among the choices.

    Raises:
        UserError: which setting, what is expected, what was given
    """
    for item in value if isinstance(value, tuple) else (value,):
        if item is None:
            continue
        if spec.choices is not None and item not in spec.choices:
            raise unknown_name(f"value of `{name}`:", str(item), map(str, spec.choices))
        if isinstance(item, int | float) and not isinstance(item, bool) and not _within(item, spec):
            raise UserError(f"`{name}` must be {spec.range or 'finite'}, got {item}")


def described(kind: Any) -> str:
    """A type in words, for a message."""
    return " or ".join(_WORDS.get(candidate, _described_sequence(candidate)) for candidate in _candidates(kind))


def from_mapping(owner: type, given: Mapping[str, Any], where: str = "") -> Any:
    """An instance of ``owner`` from names and values.

    Args:
        owner: a dataclass of settings
        given: name -> value
        where: comes before the message of an error, e.g. the file that holds the values

    Raises:
        UserError: a name that it has not (the nearest one), or as on construction
    """
    known = settings_of(owner)
    for name in given:
        if name not in known:
            raise UserError(f"{where}{unknown_name('setting', name, known)}")
    try:
        return owner(**given)
    except UserError as error:
        raise UserError(f"{where}{error}") from error if where else None


def command_words(settings: Mapping[str, Any]) -> list[str]:
    """The words of a command line that give these settings: ``{"lr": 0.1, "no_hflip": True}`` ->
    ``["--lr", "0.1", "--no-hflip"]``. One that is None, or that turns off what has no flag for it, is left out."""
    words: list[str] = []
    for name, value in settings.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            off = [] if name.startswith("no_") else ["--no-" + flag[2:]]
            words += [flag] if value else off
        elif value is not None and value != ():
            words += [flag, *(map(str, value) if isinstance(value, tuple | list) else [str(value)])]
    return words


_NO = object()
_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    type(None): "left out",
}


def _candidates(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _as(kind: Any, value: Any) -> Any:
    if kind is Any:
        return value
    origin = get_origin(kind)
    if origin is tuple:
        return _as_tuple(get_args(kind), value)
    if origin is Literal:
        return value if value in get_args(kind) else _NO
    if origin is not None:
        kind = origin
    if kind is bool:
        return value if isinstance(value, bool) else _NO
    if kind in (int, float):
        return _as_number(kind, value)
    if kind is str and hasattr(value, "__fspath__"):
        return str(value)
    return value if isinstance(value, kind) else _NO


def _as_number(kind: type, value: Any) -> Any:
    if isinstance(value, bool) or not hasattr(value, "__float__") or getattr(value, "ndim", 0) != 0:
        return _NO
    if isinstance(value, str):
        return _NO
    if kind is float:
        return float(value)
    return int(value) if hasattr(value, "__index__") else _NO


def _as_tuple(kinds: tuple[Any, ...], value: Any) -> Any:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return _NO
    expected = [kinds[0]] * len(value) if len(kinds) == 2 and kinds[1] is Ellipsis else list(kinds)
    if len(expected) != len(value):
        return _NO
    items = [_as(kind, item) for kind, item in zip(expected, value, strict=True)]
    return _NO if any(item is _NO for item in items) else tuple(items)


def _described_sequence(kind: Any) -> str:
    if get_origin(kind) is tuple:
        kinds = get_args(kind)
        if kinds[-1] is Ellipsis:
            return f"a list, each of it {described(kinds[0])}"
        return f"{len(kinds)} values, each {described(kinds[0])}"
    return getattr(kind, "__name__", str(kind))


def _within(number: float, spec: Spec) -> bool:
    return (
        math.isfinite(number)
        and (spec.at_least is None or number >= spec.at_least)
        and (spec.above is None or number > spec.above)
        and (spec.at_most is None or number <= spec.at_most)
        and (spec.below is None or number < spec.below)
    )
