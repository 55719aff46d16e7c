"""Errors that speak to the person: what was wrong, where, and what to do."""

from __future__ import annotations

import difflib
import signal
from collections.abc import Iterable


class UserError(ValueError):
    """Bad input. The command line prints its message as one line and exits with status 2."""


class Interrupted(Exception):
    """SIGTERM or SIGINT ended a run that can be continued. The command line exits with 128 plus the signal's number.

    Args:
        number (int): of the signal
        where (str): in which epoch it came
    """

    def __init__(self, number: int, where: str):
        name = signal.Signals(number).name
        super().__init__(f"stopped by {name} {where}; the same command continues after the last complete epoch")
        self.number = number


class ProcessLost(Exception):
    """Another process of a run that has many ended without a word. The command line exits with status 1."""

    def __init__(self) -> None:
        super().__init__("another process of this run ended; the same command continues after the last complete epoch")


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> UserError:
    """The error for a name that is not among ``valid``: all valid names and the nearest match."""
    valid = sorted(valid)
    nearest = difflib.get_close_matches(name.lower(), [v.lower() for v in valid], n=1, cutoff=0.5)
    hint = next((v for v in valid if nearest and v.lower() == nearest[0]), None)
    suggestion = f"; did you mean {hint!r}?" if hint else "."
    return UserError(f"unknown {kind} {name!r}{suggestion} Valid names: {', '.join(valid)}")
