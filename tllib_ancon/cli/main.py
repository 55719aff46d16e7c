"""The command ``tllib-ancon``: its words, the one line that ends it, its streams, and its part in many processes."""

import argparse
import importlib
import io
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from tllib_ancon import toolkit  # noqa: F401 - TLLib works in every command
from tllib_ancon._version import __version__
from tllib_ancon.cli.parser import Parser, as_flag
from tllib_ancon.runtime.errors import (
    BAD_INPUT,
    CONTINUES,
    BadSetting,
    Interrupted,
    in_words,
    spelling_settings,
    unknown_name,
)
from tllib_ancon.runtime.interruption import sigterm_raises
from tllib_ancon.runtime.memory import keep_freed_memory
from tllib_ancon.runtime.text import say

COMMANDS = {
    "demo": "compare source-only, self-training, ELR and AnCon on digits; downloads nothing",
    "pretrain": "train a source model",
    "adapt": "adapt a source model to the unlabelled images of a target domain",
    "script": "run an example script of TLLib unmodified, and adapt the model that it trains",
    "evaluate": "measure the accuracy and the calibration of a checkpoint",
    "predict": "write the predictions for images to a CSV or NPZ file, one row for each image",
    "certify": "compare a run's two models by labels of a few images on which they disagree",
    "check": "check a model with images before adapting",
    "benchmark": "make the runs of a table of the paper",
    "list": "list the methods with their options, the networks, the layouts of data or the criteria",
    "report": "write tables, figures and one HTML page of finished runs, beside the paper's numbers",
}
"""Each is in :data:`tllib_ancon.cli.commands.COMMANDS`, or in ``COMMANDS`` of the module below."""

MODULES = {
    "script": "script",
    "list": "listing",
    "demo": "laboratory",
    "benchmark": "laboratory",
    "report": "laboratory",
}
"""Modules of :mod:`tllib_ancon.cli` that are imported for their commands alone."""

EPILOGS = {
    "pretrain": "An epoch of erm is a pass over the source, unless --iters-per-epoch sets another length; cdan's and "
    "mdd's learning rate is lr (1 + gamma step)^-decay.",
    "adapt": "In many processes: torchrun --nproc-per-node N -m -- tllib_ancon adapt ... (the -- keeps torchrun from "
    "taking --log for one of its own).",
    "script": "The adaptation takes other settings from the script's arguments. tllib-ancon script PATH "
    "--method METHOD --help lists the flags of the adaptation that users set first, --help-all every one.",
    "benchmark": 'To change settings, write a plan: a TOML file with extends = "TABLE" and the tables [common], '
    "[source.erm] and [adapt] as in tllib_ancon/laboratory/paper.",
}
"""What stands at the end of a help text."""

IN_MANY_PROCESSES = ("adapt", "pretrain", "evaluate", "predict")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit status: 0, or with one line on standard error 2 for bad input, 1 if a
    process was lost, 128 plus the number of a signal."""
    with sigterm_raises(), spelling_settings(as_flag):
        try:
            args = parse(list(sys.argv[1:] if argv is None else argv))
            if _one_of_many():
                return _run_one_of_many(args)
            return int(args.command.run(args))
        except BrokenPipeError:  # whoever reads has enough
            raise
        except BAD_INPUT as error:
            return _ended(f"error: {' '.join(in_words(error).split())}", 2)
        except Interrupted as stop:
            return _ended(str(stop), 128 + stop.number)
        except KeyboardInterrupt:
            return _ended(str(Interrupted(signal.SIGINT)), 128 + signal.SIGINT)


def _ended(message: str, status: int) -> int:
    """Show why the command ends, once for all processes; returns the exit status."""
    if _tells(status):
        say(f"tllib-ancon: {message}", file=sys.stderr)
    return status


def _tells(status: int) -> bool:
    """Whether this process speaks for all: the first with bad input, else the main one."""
    if not _one_of_many():
        return True
    if status != 2:
        return os.environ["RANK"] == "0"
    from tllib_ancon.runtime import processes

    return processes.tells()


def parse(arguments: list[str]) -> argparse.Namespace:
    """The arguments of one subcommand, with its name as ``chosen`` and what it does as ``command``."""
    name = next(iter(arguments), "-")
    if name.startswith("-"):
        return _parse_without_command(arguments)
    if name not in COMMANDS:
        raise unknown_name("command", name, COMMANDS)
    args = parser_of(name).parsed(arguments[1:])
    args.command = _named(name)
    args.chosen = name
    return args


def _parse_without_command(arguments: list[str]) -> argparse.Namespace:
    """Show the help text or the version; anything else is an error."""
    parser = Parser(
        prog="tllib-ancon",
        usage="%(prog)s COMMAND [flags]",
        description="Adapt image classifiers to another domain without labels, by Anchored Confidence (AnCon).",
        epilog="tllib-ancon COMMAND --help lists the flags that users set first, --help-all every flag.",
    )
    parser.add("options", "--version", action="version", version=f"tllib-ancon {__version__}", help="show the version")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, title="commands")
    for name, help_text in COMMANDS.items():
        commands.add_parser(name, help=help_text)
    return parser.parse_args(arguments)


def parser_of(name: str) -> Parser:
    description = f"{COMMANDS[name][0].upper()}{COMMANDS[name][1:]}."
    parser = Parser(prog=f"tllib-ancon {name}", description=description, epilog=EPILOGS.get(name))
    _named(name).add_arguments(parser)
    return parser


def _named(name: str) -> Any:
    return importlib.import_module(f"tllib_ancon.cli.{MODULES.get(name, 'commands')}").COMMANDS[name]


def _one_of_many() -> bool:
    return "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", 1)) > 1


def _run_one_of_many(args: argparse.Namespace) -> int:
    from tllib_ancon.runtime import processes  # PyTorch starts slowly

    if args.chosen not in IN_MANY_PROCESSES:
        raise BadSetting(
            f"{args.chosen} runs in one process, and {processes.launched()} were started",
            f"use --nproc-per-node 1 or no launcher. Many can share the work of {', '.join(IN_MANY_PROCESSES)}",
        )
    processes.join()
    if not processes.is_main():
        warnings.simplefilter("ignore")
    try:
        status: int = args.command.run(args)
    except RuntimeError as error:
        if not processes.is_lost_connection(error):
            raise
        return _ended(f"another process of this run ended; {CONTINUES}", 1)
    processes.leave()
    return status


def command() -> int:
    """Run :func:`main` at a terminal; the status is 128 plus the number of SIGPIPE if a pipe's reader has gone."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    keep_freed_memory()
    try:
        try:
            status = main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more when it ends
        return 128 + signal.SIGPIPE
    if _one_of_many():
        sys.stderr.flush()
        os._exit(status)  # gloo's threads would abort an interpreter that ends
    return status
