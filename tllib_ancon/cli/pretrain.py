"""``tllib-ancon pretrain``: train a source model."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

from tllib_ancon.cli import arguments
from tllib_ancon.errors import unknown_name
from tllib_ancon.training.pretrain import PretrainingOptions

METHODS = ("erm",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_domain_arguments(parser, source=True, target=False)
    parser.add_argument("--method", default="erm", metavar="METHOD", help=f"one of {', '.join(METHODS)}")
    arguments.add_model_arguments(parser)
    arguments.add_pretrained_weights_argument(parser)
    arguments.add_transform_arguments(parser, scale=(0.08, 1.0))
    arguments.add_optimization_arguments(parser, PretrainingOptions())
    arguments.add_run_arguments(parser, log="runs/source")


def run(args: argparse.Namespace) -> int:
    selected = pretrain(args)["selected"]
    print(f"{selected['accuracy']:.2f} % on held-out source images at epoch {selected['epoch']}; model in {args.log}")
    return 0


def pretrain(args: argparse.Namespace) -> dict[str, Any]:
    """Make the run that these arguments describe; returns its result."""
    from tllib_ancon.cli import building
    from tllib_ancon.training.pretrain import pretrain_erm
    from tllib_ancon.training.run_directory import RunDirectory

    if args.method not in METHODS:
        raise unknown_name("pre-training method", args.method, METHODS)
    source = building.domain(args, args.source)
    backbone = building.backbone(args, pretrained=True)
    model = building.source_model(args, backbone, source.num_classes)
    progress = building.progress(args)
    directory = RunDirectory(args.log)
    directory.begin({"command": "pretrain", **arguments.settings(args)}, args.overwrite)
    if directory.finished:
        progress.line(f"{args.log} holds this run already, finished")
        return directory.result()
    options = PretrainingOptions(**arguments.pick(args, (field.name for field in fields(PretrainingOptions))))
    return pretrain_erm(model, source, options, directory, *building.transforms(args, backbone), progress)
