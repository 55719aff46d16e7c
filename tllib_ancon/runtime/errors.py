"""Errors that speak to the user: what was wrong, where, and what to do."""

import difflib
import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pickle import UnpicklingError

MOST_SHOWN = 60
"""Names in a message; of more, the nearest are shown."""

NEAREST = 6

USUAL_WORDS = {
    "learningrate": "lr",
    "verbose": "quiet",
    "silent": "quiet",
    "labels": "answers",
    **dict.fromkeys(("output", "outputdir", "outdir", "savedir", "savepath", "logdir", "rundir"), "log"),
    **dict.fromkeys(("modelname", "backbone", "architecture", "network"), "arch"),
    **dict.fromkeys(("weights", "weight", "ckpt", "modelpath", "pretrained"), "checkpoint"),
    **dict.fromkeys(("datadir", "datapath", "imagedir", "images"), "root"),
    **dict.fromkeys(("gpu", "gpus", "cuda", "cpu"), "device"),
}
"""What other programs call a setting, without dashes -> its name here."""

_MOST_CHARACTERS = 200

DEVICE = (
    "the GPU if PyTorch finds one, else the CPU. Set CUDA_VISIBLE_DEVICES=1 to choose a GPU, CUDA_VISIBLE_DEVICES= "
    "for the CPU"
)
"""Which device is used; no setting chooses it."""


class UserError(ValueError):
    """Bad input. The command line prints its message as one line and exits with status 2.

    A message names a setting as Python does, between backticks, such as ``batch_size`` or ``skip_corrupt=True``. The
    command line shows the flag in that place.
    """


class NotFinite(UserError):
    """Logits, features or a loss that are not finite."""


CONTINUES = "the same command continues after the last complete epoch"


class Interrupted(BaseException):
    """SIGTERM or SIGINT ended a command; the command line exits with 128 plus the signal's number. As
    ``KeyboardInterrupt`` does, it may come out of any statement, and is no error of it. ``next`` is what to do now."""

    def __init__(self, number: int, where: str = "", next: str = CONTINUES):
        name = signal.Signals(number).name
        what = f"{name} {where}" if where else name
        super().__init__(f"stopped by {what}; {next}")
        self.number = number


BAD_INPUT = (UserError, OSError, UnicodeError, RecursionError, OverflowError)
"""What ends a command with one line: what a user or the machine did, whatever statement met it."""


def in_words(error: BaseException) -> str:
    """The message of one of :data:`BAD_INPUT`; a data-loader worker wraps it in the text of a traceback."""
    text = re.split(r"^[\w.]*Error: ", str(error), flags=re.MULTILINE)[-1]
    if isinstance(error, UserError):
        return text
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    return f"{text}; check the path, its permissions, its content and the room on its disk, then give the command again"


REPAIR = "; repair it, or give another file"


@contextmanager
def reading(path: object, kind: str, advice: str = REPAIR) -> Iterator[None]:
    """Turn any error of a file's reader into one line, with the advice, which begins with ``"; "``."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # damaged bytes can lead readers to any error
        raise UserError(f"{path} cannot be read as {kind} ({_reason(error)}){advice}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, UnpicklingError):
        code = re.search(r"GLOBAL (\S+)", str(error))
        if code is None:
            return "it is damaged or of another format"
        return f"it holds {code[1]}, and reading that would run code of the file"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return one_line(error) or type(error).__name__


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> UserError:
    """The error for a name that is not among ``valid``: the nearest match, and all valid names or the nearest few."""
    letters = _letters(name)
    usual_word = USUAL_WORDS.get(letters, letters)
    if usual_word == "device":
        return UserError(f"unknown {kind} {name!r}: tllib_ancon chooses it: {DEVICE}")
    if letters in ("transform", "transforms"):
        return UserError(
            f"unknown {kind} {name!r}: pass evaluation_transform, in Python, to adapt also train_transform"
        )
    valid_names = sorted(set(valid))
    by_letters = {_letters(valid_name): valid_name for valid_name in valid_names}
    matches = difflib.get_close_matches(letters, by_letters, NEAREST, 0.5)
    if usual_word != letters and usual_word in by_letters:
        matches = [usual_word, *(match for match in matches if match != usual_word)]
    nearest = [by_letters[match] for match in matches]
    suggestion = "."
    if nearest:
        suggestion = f"; did you mean {nearest[0]!r}?"
    shown = f"Valid names: {', '.join(valid_names)}"
    if len(valid_names) > MOST_SHOWN:
        shown = f"Nearest of {len(valid_names):,} valid names: {', '.join(nearest) or 'none'}"
    return UserError(f"unknown {kind} {name!r}{suggestion} {shown}")


def one_line(error: object) -> str:
    """The beginning of a library's message, or of anything else that is shown in one. Backticks name settings alone."""
    text = " ".join(str(error).split())[:_MOST_CHARACTERS]
    if isinstance(error, UserError):
        return text
    return text.replace("`", "'")


def _letters(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
