"""What parses a command's words: errors in one line, and a short and a full help text."""

import argparse
import os
from collections.abc import Sequence
from typing import Any, NoReturn

from tllib_ancon.runtime.errors import UserError, unknown_name


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
    if isinstance(value, tuple):
        return f"{flag(name)} {' '.join(map(str, value))}"
    return f"{flag(name)} {value}"


class Parser(argparse.ArgumentParser):
    """The arguments of a command; ``--help`` lists the few that users set first, ``--help-all`` every one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, add_help=False, allow_abbrev=False)
        self.further: set[argparse.Action] = set()  # which ``--help-all`` alone lists
        self.add_argument("-h", "--help", action=_Help, nargs=0, help="show this help text")
        self.add_argument("--help-all", action=_Help, nargs=0, help="show every flag, in groups")

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; {self.prog} --help lists them")

    def parsed(self, words: Sequence[str]) -> argparse.Namespace:
        """The arguments in these words; what has no flag may stand after flags, too."""
        if any(action.nargs in (argparse.REMAINDER, argparse.PARSER) for action in self._actions):
            args, rest = self.parse_known_args(words)
        else:
            args, rest = self.parse_known_intermixed_args(words)
        flags = [word.partition("=")[0] for word in rest if word.startswith("-")]
        if flags:
            self.error(str(unknown_name(f"flag of {self.prog}:", flags[0], self._option_string_actions)))
        if rest and all(map(os.path.exists, rest)):
            raise UserError(
                f"{self.prog} takes one path, and {rest[0]} is another; give the folder of the images, or a text file "
                "(.txt) with the path of an image on each line, relative to that file"
            )
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}; most flags take one value, and {self.prog} one path")
        return args


class _Help(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None) -> None:
        assert isinstance(parser, Parser)
        if option != "--help-all":
            for action in parser.further:
                action.help = argparse.SUPPRESS
        parser.print_help()
        parser.exit()
