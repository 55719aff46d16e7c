"""The command ``tllib-ancon``."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from tllib_ancon import toolkit  # noqa: F401 - TLLib works in every command
from tllib_ancon._version import __version__
from tllib_ancon.cli import many_processes
from tllib_ancon.cli.flags import spelled
from tllib_ancon.cli.parser import Parser, parsed
from tllib_ancon.errors import Interrupted, ProcessLost, UserError, unknown_name

COMMANDS = {
    "demo": "compare source-only, self-training, ELR and AnCon on digits; downloads nothing",
    "pretrain": "train a source model",
    "adapt": "adapt a source model to the unlabelled images of a target domain",
    "run": "train a source model and adapt it, in one run directory",
    "script": "run an example script of TLLib unmodified, and adapt the model that it trains",
    "evaluate": "measure the accuracy and the calibration of a checkpoint, or choose again among the epochs of a run",
    "predict": "write the predictions for pictures to a CSV, Parquet or NPZ file, one row for each picture",
    "export": "write the model of a run as ONNX, a torch.export program, TorchScript, or weights in their first layout",
    "certify": "tell which of a run's two models is better, from labels of a few images on which they disagree",
    "benchmark": "make the runs of a table of the paper",
    "report": "write tables, figures and one HTML page of finished runs, beside the paper's numbers",
}
"""Each is a module of :mod:`tllib_ancon.cli` with ``add_arguments(parser)`` and ``run(args) -> int``."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit status: 0, or with one line on standard error 2 for bad input, 1 if a
    process was lost, 128 plus the number of a signal. Of many processes that a launcher started, one prints."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    with _sigterm_raises() as ignore_sigterm:
        try:
            try:
                return _run(arguments)
            finally:
                ignore_sigterm()
        except UserError as error:
            message, status = f"error: {_one_line(error)}", 2
        except ProcessLost as loss:
            message, status = _one_line(loss), 1
        except (Interrupted, KeyboardInterrupt) as stop:
            stop = stop if isinstance(stop, Interrupted) else Interrupted(signal.SIGINT, next=AGAIN)
            message, status = str(stop), 128 + stop.number
        _say(message)
        return status


def _run(arguments: list[str]) -> int:
    args = parse(arguments)
    status: int = many_processes.run(args) if many_processes.started() else args.module.run(args)
    return status


AGAIN = "give the same command again"


@contextmanager
def _sigterm_raises() -> Iterator[Callable[[], object]]:
    """In this context the first SIGTERM is an exception, unless the program around this command handles it; gives a
    function after which SIGTERM is ignored."""

    def ignore() -> None:
        if handles:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def stop(number: int, frame: FrameType | None) -> None:
        ignore()
        raise Interrupted(number, next=AGAIN)

    in_main_thread = threading.current_thread() is threading.main_thread()
    handles = in_main_thread and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if handles:
        signal.signal(signal.SIGTERM, stop)
    try:
        yield ignore
    finally:
        if handles:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The arguments of one subcommand, with its ``module``.

    Raises:
        UserError: an unknown command or flag, a missing or an unreadable argument
    """
    parser = Parser(
        prog="tllib-ancon",
        usage="%(prog)s COMMAND [flags]",
        description="Adapt image classifiers to another domain without labels, by Anchored Confidence (AnCon).",
        epilog="tllib-ancon COMMAND --help tells the flags that people set first, --help-all every flag.",
    )
    parser.add_argument("--version", action="version", version=f"tllib-ancon {__version__}")
    subparsers = parser.add_subparsers(prog="tllib-ancon", metavar="COMMAND", required=True, title="commands")
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    if chosen is not None and chosen not in COMMANDS:
        raise unknown_name("command", chosen, COMMANDS)
    asked = parser
    for name, help_text in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=help_text, description=f"{help_text[0].upper()}{help_text[1:]}.")
        if name == chosen:
            module = importlib.import_module(f"tllib_ancon.cli.{name}")
            module.add_arguments(subparser)
            subparser.set_defaults(module=module)
            asked = subparser
    return parsed(parser, arguments, asked)


def _say(text: str) -> None:
    if many_processes.may_speak():
        print(f"tllib-ancon: {text}", file=sys.stderr, flush=True)


def _one_line(error: Exception) -> str:
    """The message alone, with flags for settings: a data-loader worker wraps it in the text of a traceback."""
    return spelled(" ".join(str(error).rpartition("UserError: ")[2].split()))
