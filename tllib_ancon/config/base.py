"""What all configurations have: settings by keyword, checked on construction."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Any, TypeVar

from tllib_ancon.errors import UserError, unknown_name
from tllib_ancon.settings import Settings, default_of, settings_of, spec

SettingsType = TypeVar("SettingsType", bound="Config")
LARGEST_SEED = 2**32 - 1


class Config(Settings):
    """Base of every configuration: settings by keyword, checked on construction.

    Raises:
        UserError: an unknown setting (the nearest one), or a value of another type, out of range or not among the
            choices; the message names the setting in backticks
    """

    def __init__(self, **given: Any) -> None:
        known = settings_of(type(self))
        for name in given:
            if name not in known:
                raise unknown_name("setting", name, known)
        for name, field in known.items():
            value = given.get(name, default_of(field))
            if value is MISSING:
                raise UserError(f"`{name}` is needed: {spec(field).help}")
            object.__setattr__(self, name, value)
        self.__post_init__()

    def to_dict(self) -> dict[str, Any]:
        """Every setting by name, of types that JSON has."""
        return {name: plain(getattr(self, name)) for name in settings_of(type(self))}

    def replace(self: SettingsType, **changes: Any) -> SettingsType:
        """The same settings but for these."""
        return type(self)(**{**self._given(), **changes})

    def _given(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in settings_of(type(self))}


def plain(value: Any) -> Any:
    """The same of types that JSON has."""
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value
