"""``tllib-ancon run``: train a source model and adapt it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tllib_ancon.cli import adapt, arguments, pretrain, second_stage
from tllib_ancon.errors import UserError

FIRST, SECOND = "pretrain", "adapt"
"""Folders of the two stages in the run directory."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pretrain", required=True, metavar="METHOD", help=f"one of {', '.join(pretrain.OPTIONS)}")
    pretrain.add_training_arguments(parser, target_required=True)
    second_stage.add_arguments(parser)
    arguments.add_run_arguments(parser, log="runs/both")


def run(args: argparse.Namespace) -> int:
    from tllib_ancon.training.progress import result_summary

    result = run_both(args)
    print(f"{pretrain.summary(result['pretrain'])}\n{result_summary(result)}\nboth stages in {args.log}")
    return 0


def run_both(args: argparse.Namespace) -> dict[str, Any]:
    """Make both runs that these arguments describe, or go on where they were cut off; returns the joint result.

    What is finished is not made again. ``result.json`` in the run directory is that of the adaptation, with the numbers
    of its start beside those of the selected and the last model, and the first stage's under ``pretrain``.

    Raises:
        UserError: the run directory is that of one of the two commands alone, or bad input to a stage
    """
    from tllib_ancon.cli import building
    from tllib_ancon.training.run_directory import RESULT, RunDirectory

    log = Path(args.log)
    _refuse_single_run(log)
    second_stage.check(args, len(building.domain(args, args.target)))
    source_model = pretrain.pretrain(_first_stage(args, log / FIRST))
    checkpoint = RunDirectory(log / FIRST).checkpoints / source_model["checkpoint"]
    adapted = adapt.adapt(second_stage.adapt_arguments(vars(args), checkpoint, log / SECOND))
    result = {"pretrain": _numbers(source_model), **_numbers(adapted)}
    RunDirectory(log).write_json(RESULT, result)
    return result


def _refuse_single_run(log: Path) -> None:
    from tllib_ancon.training.run_directory import CHECKPOINTS, CONFIG, RESULT

    present = [name for name in (CONFIG, CHECKPOINTS) if (log / name).exists()]
    if present:
        raise UserError(
            f"run directory {log} holds {' and '.join(present)} of a run of another command, whose {RESULT} would be "
            "replaced; choose another --log"
        )


def _first_stage(args: argparse.Namespace, log: Path) -> argparse.Namespace:
    others = second_stage.names() | {"pretrain", "log"}
    own = {name: value for name, value in vars(args).items() if name not in others}
    return argparse.Namespace(**own, method=args.pretrain, log=str(log))


def _numbers(result: dict[str, Any]) -> dict[str, Any]:
    """Without the checksums of the stage's own files."""
    return {name: value for name, value in result.items() if name != "sha256"}
