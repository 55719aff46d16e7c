"""Flags of a command, derived from the classes of settings."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import NoneType
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from tllib_ancon import methods
from tllib_ancon.cli.parser import Parser, flag, switched_off
from tllib_ancon.config.settings import choices_of, defaults_of, flag_of, members_of, parts_of, range_of
from tllib_ancon.data.layouts import layouts_in_words
from tllib_ancon.runtime.types import Options


@dataclass(frozen=True)
class Flags:
    """The flags of some settings on one parser; a flag that is not given leaves no trace in the arguments."""

    settings: Mapping[str, FieldInfo]
    positional: Sequence[str] = ()  # settings that are given without a flag
    required: Sequence[str] = ()  # settings that must be given, here or in a file; the short help text shows them
    defaults: Mapping[str, Options] = field(default_factory=dict)  # method -> setting -> default

    def add(self, parser: Parser) -> None:
        """Add every flag to a parser, in groups."""
        groups: dict[str, Any] = {str(group.title): group for group in parser._action_groups}
        for name, setting in self.settings.items():
            title = flag_of(setting).group or f"options of {', '.join(methods.methods_with(name))}"
            if title not in groups:
                groups[title] = parser.add_argument_group(title)
            actions = [groups[title].add_argument(*words, **options) for words, options in self._arguments(name)]
            if not flag_of(setting).common and name not in self.required:
                parser.further.update(actions)

    def settings_in(self, args: argparse.Namespace) -> Options:
        """The settings that the arguments hold."""
        values = vars(args)
        return {name: values[self._destination(name)] for name in self.settings if self._destination(name) in values}

    def shown(self, name: str) -> str:
        """How a setting is given: ``ROOT``, or ``-t/--target``."""
        if name in self.positional:
            return name.upper()
        return "/".join(self._words(name))

    def _destination(self, name: str) -> str:
        return self.settings[name].alias or name

    def _words(self, name: str) -> list[str]:
        """The flags of a setting, a short one first."""
        if name in self.positional:
            return [name]
        short = flag_of(self.settings[name]).also
        words = [flag(self._destination(name))]
        if short:
            words.append(short)
        return sorted(words, key=lambda word: word.startswith("--"))

    def _arguments(self, name: str) -> Iterator[tuple[list[str], Options]]:
        """Words and options of a setting's argument; a switch has two arguments."""
        setting = self.settings[name]
        kinds = [kind for kind in members_of(setting.annotation) if kind is not NoneType]
        defaults = defaults_of(name, self.defaults)
        text = help_text(name, setting, defaults).replace("%", "%%")
        options = {"default": argparse.SUPPRESS, "help": text}
        if name in self.positional:
            number_of_words = "*" if _items(kinds) else "?"
            yield [name], {**options, "nargs": number_of_words, "metavar": self._metavar(name)}
        elif bool in kinds:
            yield from self._switch(name, options)
        else:
            yield self._words(name), {**options, **self._value_options(name, kinds)}

    def _value_options(self, name: str, kinds: Sequence[Any]) -> Options:
        number = None
        if str not in kinds:
            number = _number(self.settings[name].annotation)
        options: dict[str, Any] = {"type": partial(_word_as, number or str), "metavar": self._metavar(name)}
        items = _items(kinds)
        if items:
            options["nargs"] = "+" if items[-1] is Ellipsis else len(items)
        return {**options, "dest": self._destination(name)}

    def _switch(self, name: str, options: Options) -> Iterator[tuple[list[str], Options]]:
        """Words that switch a setting on, and words that switch it off. Help shows what changes the default."""
        on = self._words(name)
        off = [switched_off(word) for word in on if word.startswith("--")]
        is_on = self.settings[name].default is True
        for value, words in ((True, on), (False, off)):
            shown_help = argparse.SUPPRESS if value is is_on else options["help"]
            constant = {"dest": self._destination(name), "action": "store_const", "const": value, "help": shown_help}
            yield words, {**options, **constant}

    def _metavar(self, name: str) -> str | tuple[str, ...]:
        setting = self.settings[name]
        metavar = flag_of(setting).metavar
        if metavar:
            return metavar
        choices = ",".join(map(str, choices_of(setting)))
        if choices:
            return f"{{{choices}}}"
        return {float: "X", int: "N", None: name.upper()}[_number(setting.annotation)]


def _items(kinds: Sequence[Any]) -> tuple[Any, ...]:
    """The types of the items of a tuple, if that is the only kind, or the other one is a text."""
    tuples = [get_args(kind) for kind in kinds if get_origin(kind) is tuple]
    if len(tuples) != 1:
        return ()
    is_text = len(kinds) == 2 and str in kinds and tuples[0][0] is str
    if len(kinds) == 1 or is_text:
        return tuples[0]
    return ()


def help_text(name: str, setting: FieldInfo, defaults: Options) -> str:
    """What a setting sets, its range, and its default where that is a value; else the description tells it.

    Args:
        name: of the setting; ``data`` is described by the registered layouts
        setting: to describe
        defaults: method -> the setting's default, where that depends on the method
    """
    description = str(setting.description)
    if name == "data":
        description = f"{description} {layouts_in_words()}"
    text = "; ".join(filter(None, [range_of(setting), _default(setting, defaults)]))
    if not text:
        return description
    return f"{description} ({text})"


def _default(setting: FieldInfo, defaults: Options) -> str:
    """The default, of each method where methods differ; empty where it is decided later or there is none."""
    values = [*defaults.values()] or [setting.get_default()]
    if setting.is_required() or None in values or () in values or flag_of(setting).describes_default:
        return ""
    if len(set(values)) > 1:
        return f"default: {', '.join(f'{method} {_shown(value)}' for method, value in defaults.items())}"
    return f"default: {_shown(values[0])}"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(_shown, value))
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def _number(kind: Any) -> type[float] | type[int] | None:
    """The kind of number that a type is made of: ``tuple[float, float] | None`` -> ``float``"""
    parts = [part if isinstance(part, type) else type(part) for part in parts_of(kind)]
    if float in parts:
        return float
    if int in parts:
        return int
    return None


def _word_as(kind: type, word: str) -> Any:
    with suppress(ValueError):
        return kind(word)
    if kind is not str and "," in word:
        raise argparse.ArgumentTypeError(f"write numbers without commas, several with spaces between; got {word!r}")
    return word
