"""Flags of a command, derived from the classes of settings; and errors that name flags."""

from __future__ import annotations

import argparse
import re
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, Field
from typing import Any, Union, get_args, get_origin

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
    """

    def __init__(
        self,
        settings: Mapping[str, Field[Any]],
        kinds: Mapping[str, Any],
        names: Mapping[str, str] | None = None,
        prefixes: Callable[[str], tuple[str, ...]] = lambda name: ("",),
        positional: Collection[str] = (),
        required: Collection[str] = (),
    ):
        self.settings = settings
        self.kinds = kinds
        self.names = dict(names or {})
        self.prefixes = prefixes
        self.positional = positional
        self.required = required

    def without(self, *names: str) -> Flags:
        """The same flags but for those of these settings."""
        kept = {name: field for name, field in self.settings.items() if name not in names}
        positional = [name for name in self.positional if name in kept]
        return Flags(kept, self.kinds, self.names, self.prefixes, positional, self.required)

    def add(self, parser: argparse.ArgumentParser, show_all: bool = True) -> None:
        """Add every flag to a parser, in groups; unless ``show_all``, its help lists the common ones alone."""
        groups: dict[str, Any] = {str(group.title): group for group in parser._action_groups}
        for name, field in self.settings.items():
            described = spec(field)
            title = described.group or "other settings"
            if title not in groups:
                groups[title] = parser.add_argument_group(title)
            shown = show_all or described.common or name in self.required
            options = self._options(name, field, described, shown)
            if name in self.positional:
                groups[title].add_argument(name, nargs=None if name in self.required else "?", **options)
            elif words := self._words(name, described):
                groups[title].add_argument(*words, dest=self._dest(name), required=name in self.required, **options)

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

    def _dest(self, name: str) -> str:
        return name if name in self.positional else f"{'/'.join(self.prefixes(name))}{self.names.get(name, name)}"

    def _words(self, name: str, described: Spec) -> list[str]:
        words: list[str] = []
        for prefix in self.prefixes(name):
            words.append(flag(self.names.get(name, name), prefix))
            further = described.flags if name not in self.names else ()
            words += further if not prefix else [f"--{prefix}{word[2:]}" for word in further if word.startswith("--")]
        return sorted(words, key=lambda word: word.startswith("--"))

    def _options(self, name: str, field: Field[Any], described: Spec, shown: bool) -> dict[str, Any]:
        text = help_text(field).replace("%", "%%") if shown else argparse.SUPPRESS
        kind, count = parser_of(self.kinds[name])
        options: dict[str, Any] = {"default": argparse.SUPPRESS, "help": text}
        if kind is bool:
            positive = argparse.BooleanOptionalAction if not name.startswith("no_") else "store_true"
            return {**options, "action": positive}
        if count is not None:
            options["nargs"] = count
        metavar = described.metavar
        if metavar is None and described.choices is not None:
            metavar = "{" + ",".join(map(str, described.choices)) + "}"
        fallback = name.upper() if name in self.positional or kind is str else "N" if kind is int else "X"
        return {**options, "type": kind, "metavar": metavar or fallback}


def help_text(field: Field[Any]) -> str:
    """What a setting is, its range and its default, in one line."""
    described, default = spec(field), default_of(field)
    notes = [described.range] if described.range else []
    if described.defaults is not None:
        by_method = [f"{method} {_shown(value)}" for method, value in described.defaults.items() if value is not None]
        if by_method and len(set(described.defaults.values())) > 1:
            notes.append("default: " + ", ".join(by_method))
        elif by_method:
            notes.append(f"default: {_shown(next(iter(described.defaults.values())))}")
    elif default is not MISSING and default is not None and default != () and default is not False:
        notes.append(f"default: {_shown(default)}")
    return described.help + (f" ({'; '.join(notes)})" if notes else "")


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


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(_shown(item) for item in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


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
