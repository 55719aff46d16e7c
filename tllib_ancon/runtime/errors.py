"""Errors that speak to the user: what was wrong, where, and what to do."""

import difflib
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike
from pickle import UnpicklingError

MOST_SHOWN = 60
"""Names in a message; of more, the nearest are shown."""

_NEAREST = 6
_MOST_CHARACTERS = 200

_OF_OTHER_PROGRAMS = {
    "learningrate": "its name here is lr",
    "outputdir": "its name here is log",
    "device": "leave it out: the GPU is used if PyTorch finds one, else the CPU. Set CUDA_VISIBLE_DEVICES=1 "
    "to choose a GPU, CUDA_VISIBLE_DEVICES= for the CPU",
    "resume": "leave it out: the same command resumes after its last epoch",
    "transform": "pass evaluation_transform, in Python, to adapt also train_transform",
}
"""What other programs call a setting, without dashes -> what to do here."""


class UserError(ValueError):
    """Bad input. The command line prints it as one line and exits with status 2.

    Attributes:
        what: what is wrong and where, with the value that was received
        action: what to do; may be empty
        setting: name of the setting that it is about; may be empty
    """

    def __init__(self, what: str, action: str = "", setting: str = ""):
        super().__init__(what, action, setting)
        self.what = what
        self.action = action
        self.setting = setting

    def __str__(self) -> str:
        if not self.action:
            return self.what
        return f"{self.what}; {self.action}"


class BadSetting(UserError):
    """A setting, or an argument of a function, that cannot be used."""


class BadModel(UserError):
    """A model that breaks its contract."""


class BadImages(UserError):
    """Images or labels that break their contract."""


class BadFile(UserError):
    """A file or folder that cannot be read or written."""


class NotFinite(UserError):
    """Logits, features or a loss that are not finite."""


CONTINUES = "with a run directory the same command continues after the last complete epoch"


class Interrupted(BaseException):
    """SIGTERM or SIGINT ended a command; the command line exits with 128 plus the signal's number. As
    ``KeyboardInterrupt`` does, it may come out of any statement, and is no error of it.

    ``where`` is the place at which a training stopped. Empty: no training was stopped, and nothing continues."""

    def __init__(self, number: int, where: str = ""):
        name = signal.Signals(number).name
        text = f"stopped by {name}; give the same command again"
        if where:
            text = f"stopped by {name} {where}; {CONTINUES}"
        super().__init__(text)
        self.number = number


_spelling: ContextVar[Callable[[str, object], str]] = ContextVar("spelling")


@contextmanager
def spelling_settings(spell: Callable[[str, object], str]) -> Iterator[None]:
    """In this context messages write a setting and its value as ``spell`` does: as a flag on the command line."""
    token = _spelling.set(spell)
    try:
        yield
    finally:
        _spelling.reset(token)


def named(name: str, value: object = None) -> str:
    """A setting in a text for the user: ``batch_size`` or ``batch_size=16`` in backticks, or its flag on the command
    line."""
    return _spelling.get(_in_python)(name, value)


def network_itself() -> str:
    """What a user passes in place of weights that no name builds a network for."""
    return f"the network itself, with these weights, as {named('model')}"


def _in_python(name: str, value: object) -> str:
    if value is None:
        return f"`{name}`"
    if isinstance(value, str | PathLike):
        return f'`{name}="{value}"`'
    return f"`{name}={value}`"


BAD_INPUT = (UserError, OSError, UnicodeError, RecursionError, OverflowError)
"""What ends a command with one line: what a user or the machine did, whatever statement met it."""


def in_words(error: BaseException) -> str:
    """The message of one of :data:`BAD_INPUT`."""
    if isinstance(error, UserError):
        return str(error)
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    return f"{text}; check the path, its permissions, its content and the room on its disk, then give the command again"


REPAIR = "repair it, or give another file"


@contextmanager
def reading(path: object, kind: str, action: str = REPAIR) -> Iterator[None]:
    """Turn any error of a file's reader into one line with this action."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # damaged bytes can lead readers to any error
        raise BadFile(f"{path} cannot be read as {kind} ({_reason(error)})", action) from error


def _reason(error: Exception) -> str:
    if isinstance(error, UnpicklingError):
        return "it is damaged, or reading it would run code of the file"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return one_line(error) or type(error).__name__


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> UserError:
    """The error for a name that is not among ``valid``: the nearest match, and all valid names or the nearest few."""
    letters = _letters(name)
    what = f"unknown {kind} {name!r}"
    if letters in _OF_OTHER_PROGRAMS:
        return UserError(what, _OF_OTHER_PROGRAMS[letters], name)
    by_letters = {_letters(valid_name): valid_name for valid_name in sorted(set(valid))}
    nearest = [by_letters[match] for match in difflib.get_close_matches(letters, by_letters, _NEAREST, 0.5)]
    suggestion = "."
    if nearest:
        suggestion = f"; did you mean {nearest[0]!r}?"
    listed = f"Valid names: {', '.join(by_letters.values())}"
    if len(by_letters) > MOST_SHOWN:
        listed = f"Nearest of {len(by_letters):,} valid names: {', '.join(nearest) or 'none'}"
    return UserError(f"{what}{suggestion} {listed}", setting=name)


def one_line(error: object) -> str:
    """The beginning of a library's message, or of anything else that is shown in one."""
    return " ".join(str(error).split())[:_MOST_CHARACTERS]


def _letters(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
