"""Flags of a command, derived from the classes of settings; and errors that name flags."""

from __future__ import annotations

import argparse
import re
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, Field
from typing import Any, Union, get_args, get_origin

from tllib_ancon.cli.parser import Parser, Switch
from tllib_ancon.errors import UserError
from tllib_ancon.settings import Spec, default_of, spec

NUMBERS = (int, float)
SETTING = re.compile(r"`([a-z][a-z0-9_]*)(?:=([^`]*))?`")
"""A setting in the message of an error, with or without a value."""


def flag(name: str, prefix: str = "") -> str:
    """``batch_size`` -> ``--batch-size``"""
    return f"--{prefix}{name.replace('_', '-')}"


def spelled(message: str, of: Callable[[str], str] = flag) -> str:
    """A message with the flags that set what it names in backticks.

    Args:
        message: of a :class:`~tllib_ancon.errors.UserError`
        of: name of a setting -> its flag
    """

    def words(match: re.Match[str]) -> str:
        name, value = match.groups()
        if value is None or value == "True":
            return of(name)
        return f"{of(name)} {value}"

    return SETTING.sub(words, message)


class Flags:
    """The flags of some settings on one parser.

    A flag that is not given leaves no trace in the parsed arguments, so that what was given can be told from what is a
    default.

    Args:
        settings: name -> field, with the type of each in ``kinds``
        kinds: name -> type
        names: how a setting is called here, where not by its own name
        prefixes: the prefixes under which a setting has a flag, by its name; by default the empty one alone
        positional: settings that are given without a flag
        required: settings that must be given on the command line
        needed: settings that must be given there or in a file; the usage line shows them
    """

    def __init__(
        self,
        settings: Mapping[str, Field[Any]],
        kinds: Mapping[str, Any],
        names: Mapping[str, str] | None = None,
        prefixes: Callable[[str], tuple[str, ...]] = lambda name: ("",),
        positional: Collection[str] = (),
        required: Collection[str] = (),
        needed: Collection[str] = (),
    ):
        self.settings = settings
        self.kinds = kinds
        self.names = dict(names or {})
        self.prefixes = prefixes
        self.positional = positional
        self.required = required
        self.needed = needed or required

    def without(self, *names: str) -> Flags:
        """The same flags but for those of these settings."""
        kept = {name: field for name, field in self.settings.items() if name not in names}
        positional, required, needed = (
            [name for name in listed if name in kept] for listed in (self.positional, self.required, self.needed)
        )
        return Flags(kept, self.kinds, self.names, self.prefixes, positional, required, needed)

    def add(self, parser: Parser, common: bool = True) -> None:
        """Add every flag to a parser, in groups, and what is needed to its usage line.

        Args:
            common: its short help text lists the common ones; else none of these flags
        """
        if self.needed:
            parser.usage = f"%(prog)s {self._usage()} [flags]"
        groups: dict[str, Any] = {str(group.title): group for group in parser._action_groups}
        for name, field in self.settings.items():
            described = spec(field)
            title = described.group or "other settings"
            if title not in groups:
                groups[title] = parser.add_argument_group(title)
            options = self._options(name, field)
            if name in self.positional:
                action = groups[title].add_argument(name, nargs=None if name in self.required else "?", **options)
            elif words := self._words(name, described):
                required = name in self.required
                action = groups[title].add_argument(*words, dest=self._dest(name), required=required, **options)
            else:
                continue
            if not (common and (described.common or name in self.needed)):
                parser.further.add(action)

    def given(self, args: argparse.Namespace) -> dict[str, Any]:
        """The settings that were given, by name."""
        values = vars(args)
        found = {name: values[self._dest(name)] for name in self.settings if self._dest(name) in values}
        return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}

    def flag(self, name: str) -> str:
        """The flag of a setting, for a message."""
        prefixes = self.prefixes(name) if name in self.settings else ("",)
        return flag(self.names.get(name, name), prefixes[-1] if prefixes else "")

    def shown(self, name: str) -> str:
        """How a setting is given: ``ROOT``, or ``-t/--target``."""
        described = spec(self.settings[name])
        if name in self.positional:
            return str(described.metavar or name.upper())
        return "/".join(self._words(name, spec(self.settings[name])))

    def _usage(self) -> str:
        """What is needed, as it is given: ``ROOT -t TARGET``."""
        parts = []
        for name in self.needed:
            words = [] if name in self.positional else [self._words(name, spec(self.settings[name]))[0]]
            parts += [*words, str(self._metavar(name))]
        return " ".join(parts)

    def _dest(self, name: str) -> str:
        return name if name in self.positional else f"{'/'.join(self.prefixes(name))}{self.names.get(name, name)}"

    def _words(self, name: str, described: Spec) -> list[str]:
        words: list[str] = []
        for prefix in self.prefixes(name):
            words.append(flag(self.names.get(name, name), prefix))
            further = described.flags if name not in self.names else ()
            words += further if not prefix else [f"--{prefix}{word[2:]}" for word in further if word.startswith("--")]
        return sorted(words, key=lambda word: word.startswith("--"))

    def _options(self, name: str, field: Field[Any]) -> dict[str, Any]:
        text = help_text(field, name in self.needed).replace("%", "%%")
        kind, count = parser_of(self.kinds[name])
        options: dict[str, Any] = {"default": argparse.SUPPRESS, "help": text}
        if kind is bool:
            if name.startswith("no_"):
                return {**options, "action": "store_true"}
            return {**options, "action": Switch, "on": default_of(field) is True}
        if count is not None:
            options["nargs"] = count
        return {**options, "type": kind, "metavar": self._metavar(name)}

    def _metavar(self, name: str) -> str | tuple[str, ...]:
        described, kinds = spec(self.settings[name]), numbers_in(self.kinds[name])
        if described.metavar is not None:
            return described.metavar
        if described.choices is not None:
            return "{" + ",".join(map(str, described.choices)) + "}"
        return "X" if float in kinds else "N" if kinds else name.upper()


def help_text(field: Field[Any], needed: bool = False) -> str:
    """What a setting is, its range and its default, in one line."""
    described = spec(field)
    notes = [note for note in (described.range, "needed" if needed else _default(field)) if note]
    return described.help + (f" ({'; '.join(notes)})" if notes else "")


def _default(field: Field[Any]) -> str:
    """The default in words; empty where the help text tells it."""
    described, default = spec(field), default_of(field)
    if described.defaults is not None:
        by_method = {method: value for method, value in described.defaults.items() if value is not None}
        if len(set(described.defaults.values())) == 1:
            return f"default: {_shown(next(iter(by_method.values())))}"
        return "default: " + ", ".join(f"{method} {_shown(value)}" for method, value in by_method.items())
    if default is MISSING:
        return "needed"
    if default is None or default == ():
        return "" if "default" in described.help else "default: none"
    return f"default: {_shown(default)}"


def parser_of(kind: Any) -> tuple[Callable[[str], Any], int | str | None]:
    """What turns a word of the command line into a value of this type, and how many words there are."""
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    first, *others = (candidate for candidate in kinds if candidate is not type(None))
    if others:
        return _word_as(*(kind for kind in NUMBERS if kind in (first, *others))), None
    if get_origin(first) is tuple:
        items = get_args(first)
        return parser_of(items[0])[0], "+" if items[-1] is Ellipsis else len(items)
    return _word_as(first) if first in NUMBERS else first, None


def _word_as(*kinds: Any) -> Callable[[str], Any]:
    """A number where the word is one, else the word as it is, which the settings refuse in their own words."""

    def value(word: str) -> Any:
        for kind in kinds:
            with suppress(ValueError):
                return kind(word)
        return word

    return value


def numbers_in(kind: Any) -> set[type]:
    """Which of ``int`` and ``float`` a type is made of: ``tuple[float, float] | None`` -> ``{float}``"""
    if get_args(kind):
        return set().union(*(numbers_in(item) for item in get_args(kind)))
    return {kind} if kind in NUMBERS else set()


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(_shown(item) for item in value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@contextmanager
def checked(flags: Flags, before: str = "", **of_stages: Flags) -> Iterator[None]:
    """In this context an error names the flags of the command instead of the settings.

    Args:
        flags: of the command
        before: begins the message
        of_stages: other flags for the errors of a stage
    """
    try:
        yield
    except UserError as error:
        owner = of_stages.get(error.stage or "", flags)
        raise UserError(before + spelled(str(error), owner.flag)) from error
