"""Flags of a command, derived from the classes of settings."""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import NoneType
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from tllib_ancon.cli.parser import Parser, flag, spelled, switched_off
from tllib_ancon.settings import choices_of, flag_of, members_of, parts_of, range_of


@dataclass(frozen=True)
class Flags:
    """The flags of some settings on one parser; a flag that is not given leaves no trace in the arguments."""

    settings: Mapping[str, FieldInfo]
    positional: Sequence[str] = ()  # settings that are given without a flag
    needed: Sequence[str] = ()  # settings that must be given, here or in a file; the usage line shows them

    def add(self, parser: Parser) -> None:
        """Add every flag to a parser, in groups; the usage line has the needed ones."""
        if self.needed:
            flags = {name: "" if name in self.positional else f"{self._words(name)[0]} " for name in self.needed}
            usage = [f"{word}{self._metavar(name)}" for name, word in flags.items()]
            if "--checkpoint FILE" in usage:
                usage[usage.index("--checkpoint FILE")] = "{--checkpoint FILE | -a hf:NAME}"
            parser.usage = f"%(prog)s {' '.join(usage)} [flags]"
        groups: dict[str, Any] = {str(group.title): group for group in parser._action_groups}
        for name, setting in self.settings.items():
            own = flag_of(setting)
            title = own.group or "method"
            if title not in groups:
                groups[title] = parser.add_argument_group(title)
            for words, options in self._arguments(name, setting):
                action = groups[title].add_argument(*words, **options)
                if not (own.common or name in self.needed):
                    parser.further.add(action)

    def given(self, args: argparse.Namespace) -> dict[str, Any]:
        values = vars(args)
        given = {name: values[dest] for name in self.settings if (dest := self._destination(name)) in values}
        return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}

    def shown(self, name: str) -> str:
        """How a setting is given: ``ROOT``, or ``-t/--target``."""
        return name.upper() if name in self.positional else "/".join(self._words(name))

    def _destination(self, name: str) -> str:
        return self.settings[name].alias or name

    def _words(self, name: str) -> list[str]:
        if name in self.positional:
            return [name]
        words = filter(None, (flag(self._destination(name)), flag_of(self.settings[name]).also))
        return sorted(words, key=lambda word: word.startswith("--"))

    def _arguments(self, name: str, setting: FieldInfo) -> Iterator[tuple[list[str], dict[str, Any]]]:
        """Words and options of a setting's argument; a switch has two arguments."""
        kinds = [kind for kind in members_of(setting.annotation) if kind is not NoneType]
        items = get_args(kinds[0]) if len(kinds) == 1 and get_origin(kinds[0]) is tuple else ()
        text = spelled(help_text(setting, name in self.needed)).replace("%", "%%")
        words, options = self._words(name), {"default": argparse.SUPPRESS, "help": text}
        if name in self.positional:
            yield words, {**options, "nargs": "*" if items else "?", "metavar": self._metavar(name)}
        elif bool in kinds:
            options |= {"dest": self._destination(name), "action": "store_const"}
            off = [switched_off(word) for word in words if word.startswith("--")]
            for value, these in ((True, words), (False, off)):
                hidden = {"help": argparse.SUPPRESS} if value is (setting.default is True) else {}
                if these:
                    yield these, {**options, "const": value, **hidden}
        else:
            number = (_number(setting.annotation) if len(kinds) == 1 else None) or str
            several = {"nargs": "+" if items[-1] is Ellipsis else len(items)} if items else {}
            kind = {"type": partial(_word_as, number), "metavar": self._metavar(name)}
            yield words, {**options, **several, **kind, "dest": self._destination(name)}

    def _metavar(self, name: str) -> str | tuple[str, ...]:
        setting = self.settings[name]
        choices = ",".join(map(str, choices_of(setting)))
        by_type = {float: "X", int: "N", None: name.upper()}[_number(setting.annotation)]
        return flag_of(setting).metavar or (f"{{{choices}}}" if choices else by_type)


def help_text(setting: FieldInfo, needed: bool = False) -> str:
    """What a setting sets, its range, and its default unless the description has it; settings in backticks."""
    is_described = re.search(r"\b[Dd]efault\b|\b[Nn]ot needed\b", str(setting.description)) is not None
    default = "needed" if needed else _default(setting)
    notes = [note for note in (range_of(setting), "" if is_described else default) if note]
    return str(setting.description) + (f" ({'; '.join(notes)})" if notes else "")


def _default(setting: FieldInfo) -> str:
    defaults, default = flag_of(setting).defaults, setting.default
    if defaults is not None and len(set(defaults.values())) > 1:
        by_method = (f"{method} {_shown(value)}" for method, value in defaults.items() if value is not None)
        return f"default: {', '.join(by_method)}"
    if defaults is not None:
        (default,) = set(defaults.values())
    elif setting.is_required():
        return "needed"
    if default is None or default == ():
        return "default: none"
    return f"default: {_shown(default)}"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(_shown, value))
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _number(kind: Any) -> type[float] | type[int] | None:
    """The kind of number that a type is made of: ``tuple[float, float] | None`` -> ``float``"""
    parts = [part if isinstance(part, type) else type(part) for part in parts_of(kind)]
    return float if float in parts else int if int in parts else None


def _word_as(kind: type, word: str) -> Any:
    with suppress(ValueError):
        return kind(word)
    return word
