"""What parses a command's words: errors in one line, and a short and a full help text."""

import argparse
import os
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from tllib_ancon.runtime.errors import USUAL_WORDS, UserError, unknown_name

SETTING = re.compile(r"`([a-z][a-z0-9_]*)(?:=([^`]*))?`")
"""A setting in the description of another, with or without a value."""

OF_RUNS = {"checkpoint": ("run",), "log": ("run", "checkpoint"), "run": ("checkpoint",)}
"""What people call a run that a command takes without a flag."""


def flag(name: str) -> str:
    """``batch_size`` -> ``--batch-size``"""
    return f"--{name.replace('_', '-')}"


def switched_off(word: str) -> str:
    """``--skip-corrupt`` -> ``--no-skip-corrupt``, ``--no-hflip`` -> ``--hflip``"""
    if word.startswith("--no-"):
        return f"--{word.removeprefix('--no-')}"
    return f"--no-{word.removeprefix('--')}"


def as_flag(name: str, value: object = None) -> str:
    """A setting and its value as the command line takes them: ``--batch-size 16``, ``--no-hflip``."""
    if value is False:
        return switched_off(flag(name))
    if value is None or value is True:
        return flag(name)
    return f"{flag(name)} {value}"


def spelled(description: str) -> str:
    """The description of a setting for the help text, with flags in place of the settings in backticks."""

    def words(match: re.Match[str]) -> str:
        name, value = match.groups()
        return as_flag(name, {"True": True, "False": False}.get(value, value))

    return SETTING.sub(words, description)


class Parser(argparse.ArgumentParser):
    """The arguments of a command; ``--help`` lists the few that users set first, ``--help-all`` every one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": _Formatter, **options, "add_help": False, "allow_abbrev": False})
        self.further: set[argparse.Action] = set()  # which ``--help-all`` alone lists
        self.add_argument("-h", "--help", action=_Help, help="show this help text")
        self.help_all = self.add_argument("--help-all", action=_Help, help="show every flag, in groups")

    def format_help(self, full: bool = False) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for group in self._action_groups:
            formatter.start_section(group.title)
            shown = [action for action in group._group_actions if full or action not in self.further]
            formatter.add_arguments([action for action in shown if self.further or action is not self.help_all])
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; {self.prog} --help lists them")

    def parsed(self, words: Sequence[str]) -> argparse.Namespace:
        """The arguments in these words; what has no flag may stand after flags, too."""
        args, rest = self.parse_known_args(words)
        flags = [word.partition("=")[0] for word in rest if word.startswith("-")]
        if flags:
            self._refuse_flag_of_a_place(flags[0])
            self.error(str(unknown_name(f"flag of {self.prog}:", flags[0], self._option_string_actions)))
        for action in self._actions:
            if rest and not action.option_strings and not hasattr(args, action.dest):
                rest = _set(args, action, rest)
        if rest and all(map(os.path.exists, rest)):
            raise UserError(
                f"{self.prog} takes one path, and {rest[0]} is another; give the folder of the images, or a text file "
                "(.txt) with the path of an image on each line, relative to that file"
            )
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}; most flags take one value, and {self.prog} one path")
        return args

    def _refuse_flag_of_a_place(self, word: str) -> None:
        """Raise an error for a flag in front of what is given without one, such as the images."""
        name = word.strip("-").replace("-", "_")
        names = {name, USUAL_WORDS.get(name.replace("_", ""), ""), *OF_RUNS.get(name, ())}
        if any(not action.option_strings and action.dest in names for action in self._actions):
            usage = " ".join(self.format_usage().removeprefix("usage: ").split())
            raise UserError(f"{word} is no flag here: give what follows it alone, as in {usage}")


def _set(args: argparse.Namespace, action: argparse.Action, words: list[str]) -> list[str]:
    """Give an argument its words; returns those that are left."""
    if action.nargs == "*":
        setattr(args, action.dest, words)
        return []
    setattr(args, action.dest, words[0])
    return words[1:]


class _Formatter(argparse.HelpFormatter):
    def _format_action_invocation(self, action: argparse.Action) -> str:
        """``-b, --batch-size B``, with the value once."""
        if not action.option_strings:
            return super()._format_action_invocation(action)
        value = ""
        if action.nargs != 0:
            value = self._format_args(action, action.dest.upper())
        return f"{', '.join(action.option_strings)} {value}".strip()


class _Help(argparse._HelpAction):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        assert isinstance(parser, Parser)
        print(parser.format_help(self.option_strings == ["--help-all"]), end="")
        parser.exit()
