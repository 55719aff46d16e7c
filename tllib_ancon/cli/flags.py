"""Flags of a command, derived from the classes of settings."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from tllib_ancon import methods
from tllib_ancon.cli.parser import Parser, flag, switched_off
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.pretrain import DEFAULTS, PretrainConfig
from tllib_ancon.config.settings import Settings, choices_of, defaults_of, flag_of, parts_of
from tllib_ancon.data.layout import LAYOUTS
from tllib_ancon.opening.defaults import described
from tllib_ancon.runtime.types import Options

_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def defaults_in_words(owner: type[Settings], settings: Mapping[str, FieldInfo]) -> dict[str, str]:
    """Setting -> its default: a value, what the ladder of defaults asks one after the other, or that of each method."""
    by_method = _defaults_by_method(owner)
    decided = described(owner)
    return {
        name: _default(setting, decided.get(name, ""), defaults_of(name, by_method))
        for name, setting in settings.items()
    }


def _defaults_by_method(owner: type[Settings]) -> Mapping[str, Options]:
    """Method -> setting -> default, of settings whose default depends on the method."""
    if issubclass(owner, AdaptConfig):
        return {name: methods.training_defaults(name) for name in methods.names() if "+" not in name}
    if issubclass(owner, PretrainConfig):
        return DEFAULTS
    return {}


def add_flags(
    parser: Parser, settings: Mapping[str, FieldInfo], positional: Sequence[str], defaults: Mapping[str, str]
) -> None:
    """Add the flag of each setting to a parser, in groups; one that is not given leaves no trace in the arguments.

    Args:
        positional: settings that are given without a flag
        defaults: setting -> its default in words
    """
    for name, setting in settings.items():
        title = flag_of(setting).group or f"options of {', '.join(methods.methods_with(name))}"
        text = help_text(name, setting, defaults[name]).replace("%", "%%")
        for words, options in _arguments(name, setting, text, name in positional):
            parser.add(title, *words, common=flag_of(setting).common, default=argparse.SUPPRESS, **options)


def _arguments(name: str, setting: FieldInfo, text: str, is_positional: bool) -> Iterator[tuple[list[str], Options]]:
    """Words and options of a setting's argument; a switch has two arguments."""
    words = [word for word in (flag_of(setting).also, flag(name)) if word]
    kinds = [kind for kind in _members_of(setting.annotation) if kind is not NoneType]
    if bool in kinds:
        for value, spellings in ((True, words), (False, [switched_off(name)])):
            shown = text
            if value is (setting.default is True):  # help shows what changes the default
                shown = argparse.SUPPRESS
            yield spellings, {"dest": name, "action": "store_const", "const": value, "help": shown}
        return
    number_of_words = _number_of_words(kinds)
    options: dict[str, Any] = {"help": text, "metavar": _metavar(name, setting), "nargs": number_of_words}
    number = _number(setting.annotation)
    if number is not None and str not in kinds:
        options["type"] = partial(_word_as, number)
    if is_positional:
        yield [name], {**options, "nargs": "*" if number_of_words else "?"}
    else:
        yield words, {**options, "dest": name}


def _metavar(name: str, setting: FieldInfo) -> str | tuple[str, ...]:
    metavar = flag_of(setting).metavar
    if metavar:
        return metavar
    choices = ",".join(map(str, choices_of(setting)))
    if choices:
        return f"{{{choices}}}"
    return {float: "X", int: "N", None: name.upper()}[_number(setting.annotation)]


def _members_of(kind: Any) -> tuple[Any, ...]:
    """The members of a union; of another type, this type alone."""
    if get_origin(kind) in (Union, UnionType):
        return get_args(kind)
    return (kind,)


def _number_of_words(kinds: Sequence[Any]) -> int | str | None:
    """How many words a setting takes, None for one: several for a tuple, unless a text is no item of it."""
    tuples = [get_args(kind) for kind in kinds if get_origin(kind) is tuple]
    if not tuples or (str in kinds and str not in tuples[0]):
        return None
    if len(tuples) > 1 or Ellipsis in tuples[0]:
        return "+"
    return len(tuples[0])


def help_text(name: str, setting: FieldInfo, default: str) -> str:
    """What a setting sets, its range and its default.

    Args:
        name: of the setting; ``data`` is described by the registered layouts
        setting: to describe
        default: in words; empty where the description says it
    """
    description = str(setting.description)
    if name == "data":
        description = f"{description} {_layouts_in_words()}"
    text = "; ".join(filter(None, [_range_of(setting), default and f"default: {default}"]))
    if not text:
        return description
    return f"{description} ({text})"


def _range_of(field: FieldInfo) -> str:
    """The bounds of a setting in words, e.g. ``at least 0 and below 1``; empty if it has none."""
    parts = [*field.metadata, *parts_of(field.annotation)]
    bounds = []
    for sign, words in _BOUNDS.items():
        values = {getattr(part, sign, None) for part in parts} - {None}
        bounds += [f"{words} {value:.10g}" for value in values]
    return " and ".join(bounds)


def _layouts_in_words() -> str:
    """The values of ``data``, for its help text."""
    texts = [f"{name}: {entry.help}." for name, entry in LAYOUTS.items() if entry.help]
    datasets = [name for name, entry in LAYOUTS.items() if not entry.help]
    return " ".join([*texts, f"Datasets of TLLib: {', '.join(datasets)}."])


def _default(setting: FieldInfo, decided: str, of_methods: Options) -> str:
    """The usual default, and that of each method with another one.

    Args:
        decided: by the ladder of defaults, in words
        of_methods: method -> its default
    """
    usual = setting.get_default()
    if setting.is_required() or None in of_methods.values():
        return ""
    words = [f"{method} {_shown(value)}" for method, value in of_methods.items()]
    if decided:
        words = [decided, *words]
    elif usual not in (None, ()):
        words = [_shown(usual), *words]
    return ", ".join(words)


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
    with suppress(ValueError):  # the setting's own error names its range
        return kind(word)
    return word
