"""What a setting is: a field of a pydantic model with a type, a default, a range and a docstring, its help text.

``hold_out: Annotated[float, Flag("-o", common=True)] = Field(0.1, ge=0)`` defines a Python keyword, a TOML entry and a
flag. A field with ``exclude=True`` is no setting.
"""

import collections.abc
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, create_model, field_validator
from pydantic.fields import FieldInfo

from tllib_ancon.runtime.errors import BadSetting, UserError, named, one_line, unknown_name
from tllib_ancon.runtime.types import Options, Record

SettingsType = TypeVar("SettingsType", bound="Settings")

DECIDED_LATER: Any = None
"""Default of a setting that is decided by the method, or by :mod:`tllib_ancon.opening.defaults` once the model and the
images are open. Its type is that of the decided setting: what reads it before that, reads None."""

_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Literal: "text",
    collections.abc.Mapping: "a table",
}


@dataclass(frozen=True)
class Flag:
    """How a setting is given on the command line, beside ``--`` and its name.

    Attributes:
        also: another spelling, such as ``-b``
        metavar: name of the value in the help text; by default from the type
        group: title under which the help text lists it
        common: one of the few settings that the short help text shows
        decides: whether it decides what a run computes; the others may change when a run is continued
        describes_default: whether the description tells the default, which depends on other settings
    """

    also: str = ""
    metavar: str | tuple[str, ...] = ""
    group: str = ""
    common: bool = False
    decides: bool = True
    describes_default: bool = False


def _plain(value: Any) -> Any:
    """Python's own type for a path, a list, a table, or a number or array of NumPy, PyTorch or pandas. ``~/`` at the
    beginning of a text is the user's home folder: a shell does not replace it in ``--log=~/run``."""
    if isinstance(value, os.PathLike):
        return _plain(os.fspath(value))
    if isinstance(value, str) and value.startswith("~/"):
        return os.path.expanduser(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return tuple(map(_plain, value))
    if isinstance(value, Mapping):
        return {name: as_tuple(entry) for name, entry in value.items()}
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return value


def as_tuple(value: Any) -> Any:
    """A tuple in place of a list; all else unchanged."""
    if isinstance(value, list):
        return tuple(value)
    return value


def defined(values: Options) -> dict[str, Any]:
    """The entries that are not None."""
    return {name: value for name, value in values.items() if value is not None}


class Settings(BaseModel):
    """Base of settings: given by keyword, checked on construction, frozen.

    Lists and arrays become tuples, whole numbers floats, paths text, and NumPy numbers Python's. None counts as not
    given. Nothing else is converted.

    Attributes:
        FLAG: of a class, what holds for the flags of all its settings
        DEFAULTS: method -> setting -> default, of settings whose default depends on the method

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
    DEFAULTS: ClassVar[Mapping[str, Options]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Give each field of this class its flag and its description; one of a base class keeps those of that."""
        for name in cls.__annotations__.keys() & cls.model_fields.keys():
            field = cls.model_fields[name]
            inherited_field = cls._inherited_field(name)
            flag = flag_of(field)
            description = field.description
            if inherited_field is None:
                common_flag = vars(cls).get("FLAG", Flag())
                flag = replace(flag, group=flag.group or common_flag.group, common=flag.common or common_flag.common)
            else:
                flag = flag if flag != Flag() else flag_of(inherited_field)
                description = description or inherited_field.description
            field.description = " ".join((description or "").split())
            field.metadata = [*(entry for entry in field.metadata if not isinstance(entry, Flag)), flag]

    @classmethod
    def _inherited_field(cls, name: str) -> FieldInfo | None:
        """The field of this name of the nearest base class that has one."""
        for base in cls.__mro__[1:]:
            fields: Mapping[str, FieldInfo] = getattr(base, "model_fields", {})
            if name in fields:
                return fields[name]
        return None

    def __init__(self, /, **settings: Any) -> None:
        fields = type(self).model_fields
        set_by_user = {name: value for name, value in settings.items() if value is not None or name not in fields}
        try:
            super().__init__(**set_by_user)
        except ValidationError as error:
            raise _user_error(fields, set_by_user, error) from None
        self.check()

    def check(self) -> None:
        """Raise an error for settings that do not fit together."""

    _take = field_validator("*", mode="before")(_plain)

    def replace(self: SettingsType, **changes: Any) -> SettingsType:
        """The same settings but for these."""
        return type(self)(**{**dict(self), **changes})

    def with_paths(self: SettingsType, **arguments: Any) -> SettingsType:
        """The same settings with the arguments of a call that are paths; objects are passed beside the settings."""
        paths = {name: str(value) for name, value in arguments.items() if isinstance(value, str | Path)}
        return self.replace(**paths)

    def to_dict(self) -> Record:
        """Every setting by name, of types that JSON has."""
        return self.model_dump(mode="json", warnings=False)


def settings_of_call(owner: type[SettingsType], config: SettingsType | None, settings: Options) -> SettingsType:
    """All settings of a call, which are passed at once as ``config`` or one by one."""
    if config is None:
        return owner(**settings)
    if not isinstance(config, owner):
        raise BadSetting(
            f"{named('config')} must be {owner.__name__}, got {type(config).__name__}",
            "pass single settings by their names, those of a dict as **settings",
            setting="config",
        )
    if settings:
        raise BadSetting(
            f"give {named('config')} or single settings, not both", f"leave out {named(next(iter(settings)))}"
        )
    return config


def settings_class(name: str, *bases: type[Any], **fields: Any) -> type[Any]:
    """A class of settings that no file defines, so that pydantic need not look for its docstrings."""
    return create_model(name, __base__=bases or Settings, __cls_kwargs__={"use_attribute_docstrings": False}, **fields)


def defaults_of(name: str, by_method: Mapping[str, Options]) -> Options:
    """Method -> its default of a setting, from method -> setting -> default; empty where it is the same for all."""
    return {method: defaults[name] for method, defaults in by_method.items() if name in defaults}


def settings_of(owner: type[Settings]) -> dict[str, FieldInfo]:
    """The settings of a class by name."""
    return {name: field for name, field in owner.model_fields.items() if not field.exclude}


def flag_of(field: FieldInfo) -> Flag:
    """How a setting is given on the command line."""
    for entry in field.metadata:
        if isinstance(entry, Flag):
            return entry
    return Flag()


def parts_of(kind: Any) -> Iterator[Any]:
    """A type and all its parts: members of a union, items of a tuple, the annotated type and its annotations."""
    yield kind
    for part in get_args(kind):
        yield from parts_of(part)


def members_of(kind: Any) -> tuple[Any, ...]:
    """The members of a union; of another type, this type alone."""
    if get_origin(kind) in (Union, UnionType):
        return get_args(kind)
    return (kind,)


def choices_of(field: FieldInfo) -> tuple[Any, ...]:
    """The values that a setting may have; empty if its type does not list them."""
    choices: list[Any] = []
    for part in parts_of(field.annotation):
        if get_origin(part) is Literal:
            choices.extend(get_args(part))
    return tuple(choices)


def range_of(field: FieldInfo) -> str:
    """The bounds of a setting in words, e.g. ``at least 0 and below 1``; empty if it has none."""
    parts = [*field.metadata, *parts_of(field.annotation)]
    bounds = []
    for sign, words in _BOUNDS.items():
        values = {getattr(part, sign, None) for part in parts} - {None}
        bounds += [f"{words} {value:.10g}" for value in values]
    return " and ".join(bounds)


def described(kind: Any) -> str:
    """A type in words. None is left out: it means that a setting is not set."""
    return " or ".join(_member_in_words(member) for member in members_of(kind) if member is not NoneType)


def _member_in_words(kind: Any) -> str:
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin is Annotated:
        return described(arguments[0])
    if origin is tuple:
        count = "a list of"
        if arguments[-1] is not Ellipsis:
            count = str(len(arguments))
        return f"{count} {described(arguments[0]).removeprefix('a ')}s"
    return _WORDS.get(origin or kind, str(kind))


def _user_error(fields: Mapping[str, FieldInfo], settings: Options, error: ValidationError) -> UserError:
    detail = error.errors()[-1]
    kind = detail["type"]
    if kind == "value_error":
        return cast(UserError, detail["ctx"]["error"])
    name = str(detail["loc"][0])
    if kind == "extra_forbidden":
        return unknown_name("setting", name, fields)
    field = fields[name]
    if name not in settings:
        if field.description:
            return BadSetting(f"{named(name)} is needed", f"pass it: {field.description}", setting=name)
        return BadSetting(f"{named(name)} is needed", "pass it", setting=name)
    if kind == "literal_error" or (isinstance(settings[name], str) and choices_of(field)):
        return unknown_name(f"value of {named(name)}:", str(detail["input"]), map(str, choices_of(field)))
    if kind == "finite_number" or "than" in kind:
        return BadSetting(
            f"{named(name)} must be {range_of(field) or 'finite'}, got {one_line(detail['input'])}", setting=name
        )
    return BadSetting(f"{named(name)} must be {described(field.annotation)}, got {settings[name]!r}", setting=name)
