"""What a setting is: a field of a pydantic model with a type, a default, a range and a docstring, its help text.

``hold_out: Annotated[float, Flag("-o", common=True)] = Field(0.1, ge=0)`` defines a Python keyword, a TOML entry and a
flag.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.fields import FieldInfo

from tllib_ancon.runtime.errors import BadSetting, UserError, named, unknown_name
from tllib_ancon.runtime.types import Options, Record

SettingsType = TypeVar("SettingsType", bound="Settings")

DECIDED_LATER: Any = None
"""Default of a setting that is decided by the method, or by :mod:`tllib_ancon.opening.defaults` once the model and the
images are open. Its type is that of the decided setting: what reads it before that, reads None."""


@dataclass(frozen=True)
class Flag:
    """How a setting is given on the command line, beside ``--`` and its name.

    Attributes:
        also: another spelling, such as ``-b``
        metavar: name of the value in the help text; by default from the type
        group: title under which the help text lists it
        common: one of the few settings that the short help text shows
        decides: whether it decides what a run computes; the others may change when a run is continued
    """

    also: str = ""
    metavar: str | tuple[str, ...] = ""
    group: str = ""
    common: bool = False
    decides: bool = True


def _plain(value: Any) -> Any:
    """Python's own type for a path, a list, or a number or array of NumPy, PyTorch or pandas. ``~/`` at the beginning
    of a text is the user's home folder: a shell does not replace it in ``--log=~/run``."""
    if isinstance(value, os.PathLike):
        return _plain(os.fspath(value))
    if isinstance(value, str) and value.startswith("~/"):
        return os.path.expanduser(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return tuple(map(_plain, value))
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

    Raises:
        UserError: an unknown name (the nearest one), a value of another type, out of range or not among the choices.
            The message has the setting's name in backticks; the command line shows its flag in that place
    """

    model_config = ConfigDict(
        strict=True,
        allow_inf_nan=False,
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
    )
    FLAG: ClassVar[Flag] = Flag()

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Give each field of this class its flag and its description; one of a base class keeps those of that."""
        inherited: dict[str, FieldInfo] = {}
        for base in reversed(cls.__mro__[1:]):
            inherited |= getattr(base, "model_fields", {})
        for name in cls.__annotations__.keys() & cls.model_fields.keys():
            field = cls.model_fields[name]
            flag = flag_of(field)
            if name in inherited:
                field.description = field.description or inherited[name].description
                flag = flag if flag != Flag() else flag_of(inherited[name])
            else:
                shared = vars(cls).get("FLAG", Flag())
                flag = replace(flag, group=flag.group or shared.group, common=flag.common or shared.common)
            field.description = " ".join((field.description or "").split())
            field.metadata = [*(entry for entry in field.metadata if not isinstance(entry, Flag)), flag]

    def __init__(self, /, **settings: Any) -> None:
        fields = type(self).model_fields
        requested = {name: _plain(value) for name, value in settings.items() if value is not None or name not in fields}
        try:
            super().__init__(**requested)
        except ValidationError as error:
            raise _user_error(fields, settings, error) from None
        self.check()

    def check(self) -> None:
        """Raise an error for settings that do not fit together."""

    @property
    def requested(self) -> Options:
        """The settings that were passed; the others have the default of their field."""
        return {name: value for name, value in self if name in self.model_fields_set}

    def replace(self: SettingsType, **changes: Any) -> SettingsType:
        """The same settings but for these."""
        return type(self)(**{**self.requested, **changes})

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
    if settings or not isinstance(config, owner):
        raise BadSetting(
            f"{named('config')} is {type(config).__name__}, beside {len(settings)} single settings",
            f"pass {owner.__name__} alone, or single settings, those of a dict as **settings",
            setting="config",
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
    return dict(owner.model_fields)


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


def choices_of(field: FieldInfo) -> tuple[Any, ...]:
    """The values that a setting may have; empty if its type does not list them."""
    choices: list[Any] = []
    for part in parts_of(field.annotation):
        if get_origin(part) is Literal:
            choices.extend(get_args(part))
    return tuple(choices)


def _user_error(fields: Mapping[str, FieldInfo], settings: Options, error: ValidationError) -> UserError:
    """The first problem that pydantic found, as an error that names the setting as the user knows it."""
    details = error.errors()
    kind = details[0]["type"]
    name = str(details[0]["loc"][0])
    if kind == "extra_forbidden":
        return unknown_name("setting", name, fields)
    if kind == "missing":
        return BadSetting(f"{named(name)} is needed", f"pass it: {fields[name].description}", setting=name)
    problems = dict.fromkeys(str(detail["msg"]) for detail in details if detail["loc"][0] == name)
    return BadSetting(f"{named(name)} cannot be {settings[name]!r}", "; ".join(problems), setting=name)
