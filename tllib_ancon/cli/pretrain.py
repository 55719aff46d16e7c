"""``tllib-ancon pretrain``: train a source model."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

from tllib_ancon.cli import arguments
from tllib_ancon.errors import UserError, unknown_name
from tllib_ancon.training import launch
from tllib_ancon.training.adversarial import AdversarialTraining, CdanOptions, MddOptions, create_cdan, create_mdd
from tllib_ancon.training.pretrain import LOSSES, ErmOptions
from tllib_ancon.training.source_training import SourceTraining, SourceTrainingOptions

OPTIONS: dict[str, type[SourceTrainingOptions]] = {"erm": ErmOptions, "cdan": CdanOptions, "mdd": MddOptions}
CREATORS = {"cdan": create_cdan, "mdd": create_mdd}
SHARED_FIELDS = ("momentum", "seed", "workers", "print_freq", *arguments.SPEED_FIELDS)
"""Options with one default for every method."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--method", default="erm", metavar="METHOD", help=f"one of {', '.join(OPTIONS)}")
    add_training_arguments(parser, target_required=False)
    arguments.add_run_arguments(parser, log="runs/source")


def add_training_arguments(parser: argparse.ArgumentParser, target_required: bool) -> None:
    """Domains, model, images and optimisation; what is not given gets the method's default in :func:`resolve`."""
    arguments.add_domain_arguments(parser, source=True, target=False)
    parser.add_argument("-t", "--target", nargs="+", required=target_required, help="target domain(s); not for erm")
    arguments.add_model_arguments(parser, bottleneck_dim=argparse.SUPPRESS)
    arguments.add_pretrained_weights_argument(parser)
    arguments.add_transform_arguments(parser, scale=(0.08, 1.0))
    arguments.add_optimization_arguments(parser, _DefaultsByMethod())
    unset: dict[str, Any] = {"default": argparse.SUPPRESS}
    group = parser.add_argument_group("source only (erm)")
    group.add_argument("--loss", choices=LOSSES, help="belief-matching: of a last-layer Dirichlet", **unset)
    group.add_argument("--label-smoothing", type=float, metavar="X", help="of the cross-entropy; SHOT: 0.1", **unset)
    group.add_argument("--belief-coefficient", type=float, metavar="X", help="of belief matching's divergence", **unset)
    group = parser.add_argument_group("CDAN and MDD")
    group.add_argument("-i", "--iters-per-epoch", type=int, metavar="N", help="steps of an epoch", **unset)
    group.add_argument("--trade-off", type=float, metavar="X", help="weight of the adversarial loss", **unset)
    group.add_argument("-r", "--randomized", action="store_true", help="CDAN: randomised multilinear map", **unset)
    group.add_argument("-rd", "--randomized-dim", type=int, metavar="D", help="CDAN: its dimension", **unset)
    group.add_argument("--entropy", action="store_true", help="CDAN: entropy conditioning", **unset)
    group.add_argument("--margin", type=float, metavar="X", help="MDD: margin of the disparity", **unset)
    parser.epilog = (
        f"Defaults by method. {_defaults_text()} An epoch of erm is a pass over the source; cdan's and mdd's learning "
        "rate is lr (1 + gamma step)^-decay."
    )


def run(args: argparse.Namespace) -> int:
    result = pretrain(args)
    if launch.is_first():
        print(f"{summary(result)}; model in {args.log}")
    return 0


def pretrain(args: argparse.Namespace) -> dict[str, Any]:
    """Make the run that these arguments describe, or finish it; returns its result."""
    from tllib_ancon.training.run_directory import RunDirectory

    args = resolve(args)
    if args.method != "erm" and launch.launched() > 1:
        raise UserError(
            f"--method {args.method} runs in one process, and {launch.launched()} were started; use --nproc-per-node 1 "
            "or no launcher. erm can share its work"
        )
    directory = RunDirectory(args.log)
    training = (_source_only if args.method == "erm" else _adversarial)(args, directory)
    directory.begin({"command": "pretrain", **arguments.settings(args), **launch.settings()}, args.overwrite)
    if directory.finished:
        training.progress.line(f"{args.log} holds this run already, finished")
    return directory.result() if directory.finished else training()


def resolve(args: argparse.Namespace) -> argparse.Namespace:
    """The arguments with the method's default for each that was not given.

    Raises:
        UserError: an unknown method, an option of another one, no target where one is needed
    """
    if args.method not in OPTIONS:
        raise unknown_name("pre-training method", args.method, OPTIONS)
    defaults = {option.name: option.default for option in fields(OPTIONS[args.method])}
    for method, options in OPTIONS.items():
        for option in fields(options):
            if hasattr(args, option.name) and option.name not in defaults:
                flag = "--" + option.name.replace("_", "-")
                raise UserError(f"{flag} is an option of --method {method}, not of {args.method}; leave it out")
    if args.method != "erm" and not args.target:
        raise UserError(f"--method {args.method} needs the target's unlabelled images; pass -t DOMAIN")
    return argparse.Namespace(**{**defaults, **vars(args)})


def summary(result: dict[str, Any]) -> str:
    """What came out, in one line; of CDAN and MDD the accuracy on the target, where it has labels."""
    selected = result["selected"]
    text = f"{result['method']}, epoch {selected['epoch']}"
    if "accuracy" in selected:
        images = "held-out source images" if result["method"] == "erm" else "the target"
        text += f": accuracy {selected['accuracy']:.2f} % on {images}"
    return text


def _source_only(args: argparse.Namespace, directory: Any) -> SourceTraining:
    from tllib_ancon.cli import building
    from tllib_ancon.training.pretrain import SourceOnly

    source = building.domain(args, args.source)
    args.inputs = building.inputs(args, source)
    backbone = building.backbone(args)
    model = building.source_model(args, backbone, source.num_classes)
    transforms = building.cached(args, building.transforms(args, backbone), source)
    return SourceOnly(model, source, _options(args), directory, *transforms, building.progress(args))


def _adversarial(args: argparse.Namespace, directory: Any) -> SourceTraining:
    from tllib_ancon import toolkit
    from tllib_ancon.cli import building

    source, target = building.domain(args, args.source), building.domain(args, args.target)
    args.inputs = building.inputs(args, source, target)
    args.toolkit = toolkit.find().name
    backbone = building.backbone(args, toolkit.find())
    options = _options(args)
    pool_layer = building.pool_layer(args, backbone)
    return AdversarialTraining(
        CREATORS[args.method](toolkit.find(), backbone, source.num_classes, options, pool_layer),
        source,
        target,
        options,
        directory,
        *building.cached(args, building.transforms(args, backbone), source, target),
        building.recorder(target),
        building.progress(args),
    )


def _options(args: argparse.Namespace) -> Any:
    options = OPTIONS[args.method]
    return options(**arguments.pick(args, (option.name for option in fields(options))))


class _DefaultsByMethod:
    """Stands for the options whose defaults :func:`resolve` fills in."""

    def __getattr__(self, name: str) -> str:
        return argparse.SUPPRESS


def _defaults_text() -> str:
    def text(options: type[SourceTrainingOptions]) -> str:
        return ", ".join(
            f"{option.name.replace('_', '-')} {_shown(option.default)}"
            for option in fields(options)
            if option.name not in SHARED_FIELDS
        )

    return " ".join(f"{method}: {text(options)}." for method, options in OPTIONS.items())


def _shown(default: Any) -> str:
    return default if isinstance(default, str) else f"{default:g}"
