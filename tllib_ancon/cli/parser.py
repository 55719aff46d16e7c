"""What parses a command's words: errors in one line, and a short and a full help text."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from tllib_ancon.errors import UserError, unknown_name


class Parser(argparse.ArgumentParser):
    """The arguments of a command.

    ``--help`` lists the few that people set first, ``--help-all`` every one. Bad input raises
    :class:`~tllib_ancon.errors.UserError`.

    Attributes:
        further: the arguments that only ``--help-all`` lists
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": _Formatter, **options, "add_help": False})
        self.further: set[argparse.Action] = set()
        self.add_argument("-h", "--help", action=_Help, help="show this help text")
        self.add_argument("--help-all", action=_HelpAll, help="show every flag, in groups")

    def format_help(self, full: bool = False) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments([action for action in group._group_actions if self._shows(action, full)])
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; {self.prog} --help tells its arguments")

    def _shows(self, action: argparse.Action, full: bool) -> bool:
        if isinstance(action, _HelpAll):
            return bool(self.further)
        return full or action not in self.further


def parsed(
    parser: argparse.ArgumentParser, words: list[str], asked: argparse.ArgumentParser | None = None
) -> argparse.Namespace:
    """The arguments in these words.

    Args:
        asked: the parser of the subcommand, whose flags an unknown one is compared with

    Raises:
        UserError: an unknown flag (the nearest one)
    """
    args, unknown = parser.parse_known_args(words)
    if unknown:
        _refuse(unknown, asked or parser)
    return args


def shown_flags(action: argparse.Action) -> Sequence[str]:
    """The flags of an argument that a reader needs: a switch is shown in the direction that changes its default."""
    if not isinstance(action, Switch):
        return action.option_strings
    return [word for word in action.option_strings if word.startswith("--no-") == action.on]


class Switch(argparse.BooleanOptionalAction):
    """``--x`` and ``--no-x``, of which help texts show the one that changes the default.

    Args:
        on: whether it is on by default
    """

    def __init__(self, on: bool, **options: Any) -> None:
        super().__init__(**options)
        self.on = on


class _Formatter(argparse.HelpFormatter):
    def _format_action_invocation(self, action: argparse.Action) -> str:
        """``-b, --batch-size B``, with the value once."""
        if not action.option_strings:
            return super()._format_action_invocation(action)
        flags = ", ".join(shown_flags(action))
        value = "" if action.nargs == 0 else self._format_args(action, action.dest.upper())
        return f"{flags} {value}".strip()


class _Help(argparse.Action):
    """Show the help text and end."""

    full = False

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None, **_: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        assert isinstance(parser, Parser)
        print(parser.format_help(self.full), end="")
        parser.exit()


class _HelpAll(_Help):
    full = True


def _refuse(unknown: list[str], parser: argparse.ArgumentParser) -> NoReturn:
    flags = [word.partition("=")[0] for word in unknown if word.startswith("-")]
    if not flags:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    known = parser._option_string_actions
    prefixed = sorted(flag for flag in known if flags[0][:2] == "--" and flag.endswith(flags[0][1:]))
    if prefixed:
        raise UserError(f"unknown flag of {parser.prog}: {flags[0]!r}; did you mean {' or '.join(prefixed)}?")
    raise unknown_name(f"flag of {parser.prog}:", flags[0], known)
