"""``tllib-ancon script``: run an unmodified example script of TLLib, and adapt the model that it leaves."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from tllib_ancon.cli import adapt, second_stage
from tllib_ancon.errors import UserError

STARTS = ("latest", "best")
NEEDED = ("root", "data", "target", "arch", "log")
"""Arguments that an image classification script of TLLib has, and that the adaptation takes from it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script", metavar="PATH", help=".../examples/domain_adaptation/image_classification/cdan.py")
    parser.add_argument(
        "arguments",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="the script's own arguments; then, to adapt, --method METHOD and flags of the adaptation",
    )
    parser.epilog = "tllib-ancon script PATH --method METHOD --help tells the flags of the adaptation."


def run(args: argparse.Namespace) -> int:
    from tllib_ancon.toolkit.script import run_script
    from tllib_ancon.training.progress import result_summary

    own, ours = _split(args.arguments)
    second = _parse_second_stage(ours) if ours else None
    outcome = run_script(args.script, own)
    if outcome.exit_status != 0:
        print(f"tllib-ancon: {args.script} failed: {outcome.failure}", file=sys.stderr)
    elif second is not None:
        print(result_summary(_adapt(second, vars(outcome.arguments or argparse.Namespace()), outcome.log_directory)))
    return outcome.exit_status


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """The script's arguments, and ours: from ``--method`` on."""
    ours = (number for number, word in enumerate(words) if word.partition("=")[0] == "--method")
    border = next(ours, len(words))
    return words[:border], words[border:]


def _parse_second_stage(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tllib-ancon script PATH ...",
        description="Flags of the adaptation after a script; all else it takes from the script's arguments.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    second_stage.add_arguments(parser)
    group = parser.add_argument_group("run")
    group.add_argument(
        "--start", default="latest", choices=STARTS, help="the script's checkpoint; best was chosen on target labels"
    )
    group.add_argument("--overwrite", action="store_true", help="start the adaptation anew if it is there already")
    group.add_argument("--quiet", action="store_true", help="show errors only")
    group.add_argument("--verbose", action="store_true", help="a line every --print-freq steps")
    args = parser.parse_args(words)
    second_stage.check(args)
    return args


def _adapt(second: argparse.Namespace, script: dict[str, Any], log: Path | None) -> dict[str, Any]:
    """Adapt from the checkpoint in the script's log directory, into its folder ``adapt``."""
    missing = [f"--{name}" for name in NEEDED if script.get(name) is None]
    if missing or log is None:
        raise UserError(f"the script has no {', '.join(missing)}; --method is for TLLib's image classification scripts")
    checkpoint = log / "checkpoints" / f"{second.start}.pth"
    if not checkpoint.is_file():
        raise UserError(f"the script left no {checkpoint}; did it train (--phase train)?")
    if second.start == "best":
        print(f"tllib-ancon: warning: {checkpoint} was chosen on target labels by the script", file=sys.stderr)
    args = second_stage.adapt_arguments({**script, **vars(second)}, checkpoint, log / "adapt")
    return adapt.adapt(argparse.Namespace(**vars(args), start=second.start))
