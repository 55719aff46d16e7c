"""What parses a command's words: errors in one line, and a short and a full help text."""

import argparse
from collections.abc import Sequence
from itertools import chain
from typing import Any, NoReturn

from tllib_ancon.runtime.errors import UserError, unknown_name


def flag(name: str) -> str:
    """``batch_size`` -> ``--batch-size``"""
    return f"--{name.replace('_', '-')}"


def switched_off(name: str) -> str:
    """``skip_corrupt`` -> ``--no-skip-corrupt``, ``no_hflip`` -> ``--hflip``"""
    if name.startswith("no_"):
        return flag(name.removeprefix("no_"))
    return flag(f"no_{name}")


def as_flag(name: str, value: object = None) -> str:
    """A setting and its value as the command line takes them: ``--batch-size 16``, ``--no-hflip``."""
    if value is False:
        return switched_off(name)
    if value is None or value is True:
        return flag(name)
    if isinstance(value, tuple):
        value = " ".join(map(str, value))
    return f"{flag(name)} {value}"


class Parser(argparse.ArgumentParser):
    """The arguments of a command; ``--help`` lists the few that users set first, ``--help-all`` every one.

    Attributes:
        sections: title in the help text -> the arguments below it
        further: the arguments that ``--help-all`` alone lists
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, add_help=False, allow_abbrev=False)
        self.sections: dict[str, list[argparse.Action]] = {}
        self._groups: dict[str, Any] = {"positional arguments": self, "options": self}
        self.further: list[argparse.Action] = []
        self.add("options", "-h", "--help", action=_Help, nargs=0, help="show this help text")
        self.add("options", "--help-all", action=_Help, nargs=0, help="show every flag, in groups")

    def add(self, title: str, *words: str, common: bool = True, **options: Any) -> None:
        """Add an argument below a title; ``--help-all`` alone lists it if it is not ``common``."""
        if title not in self._groups:
            self._groups[title] = self.add_argument_group(title)
        action = self._groups[title].add_argument(*words, **options)
        self.sections.setdefault(title, []).append(action)
        if not common:
            self.further.append(action)

    def arguments(self) -> list[argparse.Action]:
        """All arguments."""
        return list(chain.from_iterable(self.sections.values()))

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; {self.prog} --help lists them")

    def parsed(self, words: Sequence[str]) -> argparse.Namespace:
        """The arguments in these words; what has no flag may stand after flags, too."""
        parse = self.parse_known_intermixed_args
        if any(action.nargs == argparse.REMAINDER for action in self.arguments()):
            parse = self.parse_known_args
        args, unread = parse(words)
        flags = [word.partition("=")[0] for word in unread if word.startswith("-")]
        if flags:
            names = chain.from_iterable(action.option_strings for action in self.arguments())
            self.error(str(unknown_name(f"flag of {self.prog}:", flags[0], names)))
        if unread:
            self.error(f"unrecognized arguments: {' '.join(unread)}; most flags take one value, {self.prog} one path")
        return args


class _Help(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        if option != "--help-all":
            for action in parser.further:
                action.help = argparse.SUPPRESS
        parser.print_help()
        parser.exit()
