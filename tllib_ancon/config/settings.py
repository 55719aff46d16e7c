"""What a setting is: a field of a pydantic model with a type, a default, a range and a docstring, its help text.

``hold_out: Annotated[float, Flag("-o", common=True)] = Field(0.1, ge=0)`` defines a Python keyword, a TOML entry and a
flag. A field with ``exclude=True`` is no setting.
"""

import collections.abc
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator
from pydantic.fields import FieldInfo
from typing_extensions import Self

from tllib_ancon.runtime.errors import UserError, one_line, unknown_name

UNREAD: Any = None
"""The default of a setting that depends on the method: None for one that does not read it."""

_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Literal: "text"}
_WORDS |= {NoneType: "nothing", collections.abc.Mapping: "a table"}


@dataclass(frozen=True)
class Flag:
    """How a setting is given on the command line, beside ``--`` and its name.

    Attributes:
        also: another spelling, such as ``-b``
        metavar: name of the value in the help text; by default from the type
        group: title under which the help text lists it
        common: one of the few settings that the short help text shows
        decides: whether it decides what a run computes; the others may change when a run is continued
        defaults: method -> its default, where that depends on the method; a method that is not named has no such
            setting
    """

    also: str = ""
    metavar: str | tuple[str, ...] = ""
    group: str = ""
    common: bool = False
    decides: bool = True
    defaults: Mapping[str, Any] | None = None


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return tuple(map(_plain, value))
    if isinstance(value, Mapping):
        return {name: tuple(entry) if isinstance(entry, list) else entry for name, entry in value.items()}
    return value.item() if getattr(value, "ndim", None) == 0 else value


class Settings(BaseModel):
    """Base of settings: given by keyword, checked on construction, frozen.

    Lists become tuples, whole numbers floats, paths text, and NumPy numbers Python's. None counts as not given. Nothing
    else is converted.

    Attributes:
        FLAG: of a class, what holds for the flags of all its settings

    Raises:
        UserError: an unknown name (the nearest one), a value of another type, out of range or not among the choices.
            The message has the setting's name in backticks; the command line shows its flag in that place
    """

    model_config = ConfigDict(
        strict=True,
        allow_inf_nan=False,
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        use_attribute_docstrings=True,
    )
    FLAG: ClassVar[Flag] = Flag()

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        for name in cls.__annotations__.keys() & cls.model_fields.keys():
            field, common = cls.model_fields[name], vars(cls).get("FLAG", Flag())
            bases = [fields[name] for base in cls.__mro__[1:] if name in (fields := getattr(base, "model_fields", {}))]
            field.description = " ".join(str(field.description or (bases and bases[0].description) or "").split())
            if not bases:
                own = flag_of(field)
                merged = {name: getattr(own, name) or getattr(common, name) for name in ("group", "common")}
                others = [entry for entry in field.metadata if not isinstance(entry, Flag)]
                field.metadata = [*others, replace(own, **merged)]

    def __init__(self, /, **given: Any) -> None:
        given = {name: value for name, value in given.items() if value is not None}
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise _refusal(type(self).model_fields, given, error) from None
        self.check()

    def check(self) -> None:
        """Raise an error for settings that do not fit together."""

    _take = field_validator("*", mode="before")(_plain)

    def replace(self, **changes: Any) -> Self:
        """The same settings but for these."""
        return type(self)(**{**dict(self), **changes})

    def to_dict(self) -> dict[str, Any]:
        """Every setting by name, of types that JSON has."""
        return self.model_dump(mode="json", warnings=False)


def settings_class(name: str, *bases: type[Any], **fields: Any) -> type[Any]:
    """A class of settings that no file defines, so that pydantic need not look for its docstrings."""
    return create_model(name, __base__=bases or Settings, __cls_kwargs__={"use_attribute_docstrings": False}, **fields)


def redefined(owner: type[Settings], name: str, default: Any = UNREAD, **by_method: Any) -> Any:
    """The setting of a base class with another default, or with one for each method that has it."""
    field: FieldInfo = Field(default)
    metadata = owner.model_fields[name].metadata
    field.metadata = [replace(e, defaults=by_method or None) if isinstance(e, Flag) else e for e in metadata]
    return field


def settings_of(owner: type[Settings]) -> dict[str, FieldInfo]:
    return {name: field for name, field in owner.model_fields.items() if not field.exclude}


def flag_of(field: FieldInfo) -> Flag:
    """How a setting is given on the command line."""
    return next((entry for entry in field.metadata if isinstance(entry, Flag)), Flag())


def parts_of(kind: Any) -> Iterator[Any]:
    """A type and all that it is made of: members of a union, items of a tuple, what is annotated."""
    yield kind
    for part in get_args(kind):
        yield from parts_of(part)


def members_of(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def choices_of(field: FieldInfo) -> tuple[Any, ...]:
    """The only values that a setting may have; empty where its type says all."""
    return tuple(
        value for part in parts_of(field.annotation) if get_origin(part) is Literal for value in get_args(part)
    )


def range_of(field: FieldInfo) -> str:
    """The bounds of a setting in words, e.g. ``at least 0 and below 1``; empty where there are none."""
    parts = [*field.metadata, *parts_of(field.annotation)]
    bounds = {sign: getattr(part, sign) for sign in _BOUNDS for part in parts if getattr(part, sign, None) is not None}
    return " and ".join(f"{_BOUNDS[sign]} {bound:.10g}" for sign, bound in bounds.items())


def described(kind: Any) -> str:
    origin, args = get_origin(kind), get_args(kind)
    if len(members_of(kind)) > 1:
        return " or ".join(map(described, args))
    if origin is Annotated:
        return described(args[0])
    if origin is tuple:
        return f"{'a list of' if args[-1] is Ellipsis else len(args)} {described(args[0]).removeprefix('a ')}s"
    return _WORDS.get(origin or kind, str(kind))


def _refusal(fields: Mapping[str, FieldInfo], given: Mapping[str, Any], error: ValidationError) -> UserError:
    detail = error.errors()[-1]
    kind, name = detail["type"], str(next(iter(detail["loc"]), ""))
    if kind == "value_error":
        return UserError(str(detail["ctx"]["error"]))
    if kind == "extra_forbidden":
        return unknown_name("setting", name, fields)
    field = fields[name]
    if name not in given:
        return UserError(f"`{name}` is needed; pass it" + (f": {field.description}" if field.description else ""))
    if kind == "literal_error":
        return unknown_name(f"value of `{name}`:", str(detail["input"]), map(str, choices_of(field)))
    if kind == "finite_number" or "than" in kind:
        return UserError(f"`{name}` must be {range_of(field) or 'finite'}, got {one_line(detail['input'])}")
    return UserError(f"`{name}` must be {described(field.annotation)}, got {given[name]!r}")
