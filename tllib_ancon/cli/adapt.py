"""``tllib-ancon adapt``: adapt a source model to unlabelled images."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from tllib_ancon.cli import arguments
from tllib_ancon.errors import unknown_name
from tllib_ancon.training import launch
from tllib_ancon.training.adapt import AdaptationOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_domain_arguments(parser, source=True, target=True)
    parser.add_argument(
        "--checkpoint", required=True, metavar="FILE", help="source model; imagenet: -a with its own ImageNet head"
    )
    arguments.add_model_arguments(parser)
    arguments.add_pretrained_weights_argument(parser)
    arguments.add_method_arguments(parser, default="ancon")
    arguments.add_transform_arguments(parser, scale=(0.5, 1.0))
    arguments.add_optimization_arguments(parser, AdaptationOptions())
    _add_batch_arguments(parser)
    arguments.add_run_arguments(parser, log="runs/adapted")
    parser.epilog = (
        "In many processes: torchrun --nproc-per-node N -m -- tllib_ancon adapt ... (the -- keeps torchrun from taking "
        "--log for one of its own), or accelerate launch --multi_gpu --num_processes N -m tllib_ancon adapt ..."
    )


def _add_batch_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("many processes (torchrun, accelerate launch) and small memories")
    group.add_argument(
        "--accumulation-steps",
        type=int,
        default=1,
        metavar="N",
        help="batches a step of the optimiser; votes and batch-norm take each by itself",
    )
    group.add_argument("--sync-batch-norm", action="store_true", help="batch-norm over all processes' batches, on GPUs")


def run(args: argparse.Namespace) -> int:
    from tllib_ancon.training.progress import result_summary

    result = adapt(args)
    if launch.is_first():
        print(result_summary(result))
    return 0


def adapt(args: argparse.Namespace) -> dict[str, Any]:
    """Make the run that these arguments describe, or finish it; returns its result."""
    from tllib_ancon.cli import building
    from tllib_ancon.training.adapt import Adaptation
    from tllib_ancon.training.run_directory import RunDirectory

    target = building.domain(args, args.target)
    _require_known_source(args)
    building.require_same_classes(args.checkpoint, target)
    model = building.start_classifier(args, target.num_classes)
    progress = building.progress(args)
    directory = RunDirectory(args.log)
    adaptation = Adaptation(
        model,
        target,
        options(args),
        directory,
        *building.cached(args, building.transforms(args, model), target),
        record=building.recorder(target),
        keep=building.keeper(target, directory) if args.save_predictions else None,
        progress=progress,
    )
    inputs = building.inputs(args, target)
    given = {**arguments.settings(args), **adaptation.options.method_options}
    settings = {"command": "adapt", **given, **launch.settings(), "inputs": inputs}
    directory.begin(settings, args.overwrite)
    if directory.finished:
        progress.line(f"{args.log} holds this run already, finished")
    return directory.result() if directory.finished else adaptation()


def _require_known_source(args: argparse.Namespace) -> None:
    """``-s`` is only written down here, and names a domain of the dataset all the same; no image of it is needed."""
    from tllib_ancon import toolkit
    from tllib_ancon.data.corrupted import LAYERED
    from tllib_ancon.data.domains import IMAGE_LIST

    if not args.source or args.data in LAYERED:
        return
    if args.data == IMAGE_LIST:
        lists = (Path(args.root) / "image_list").glob("*.txt")
        known = {path.stem for path in lists} - {"classes"}
    else:
        known = set(toolkit.find().dataset(args.data).lists)
    for code in args.source:
        if code not in known:
            raise unknown_name(f"source domain of {args.data}:", code, known)


def options(args: argparse.Namespace) -> AdaptationOptions:
    given = arguments.pick(args, (field.name for field in fields(AdaptationOptions)))
    return AdaptationOptions(**given, method_options=arguments.method_options(args))
