"""Adaptation as the second stage of a command: its flags carry the prefix ``--adapt-``."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from tllib_ancon.cli import arguments
from tllib_ancon.data.transforms import TRAIN_RESIZINGS
from tllib_ancon.errors import UserError
from tllib_ancon.training.adapt import AdaptationOptions

PREFIX = "adapt"
OF_ADAPT_ALONE = ("module", "checkpoint", "pretrained_weights", "scratch", "log")
"""Arguments of ``adapt`` that do not come from the command of two stages. A backbone that the first stage trained from
scratch is pre-trained in the second: it learns at a tenth of the rate."""
METHOD_FLAGS_OF_BOTH = ("--belief-coefficient",)
"""Flags of the adaptation's method that the first stage has too."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The method's flags as ``adapt`` has them, and with the prefix those that the first stage has too."""
    arguments.add_method_arguments(_Prefixed(parser, METHOD_FLAGS_OF_BOTH), default="ancon")
    prefixed = _Prefixed(parser)
    arguments.add_optimization_arguments(prefixed, AdaptationOptions())
    images = prefixed.add_argument_group("images")
    images.add_argument(
        "--scale", type=float, nargs=2, default=(0.5, 1.0), metavar=("MIN", "MAX"), help="area of the random crop"
    )
    images.add_argument("--train-resizing", choices=TRAIN_RESIZINGS, help="None: that of the first stage")


def names() -> set[str]:
    """What :func:`add_arguments` adds to the parsed arguments."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return set(vars(parser.parse_args([])))


def check(args: argparse.Namespace, num_images: int | None = None) -> None:
    """Refuse before the first stage what the second one would refuse.

    Args:
        args: the second stage's among them
        num_images: of the target domain, if it is known already

    Raises:
        UserError: an unknown method, an option out of range, fewer images than one batch
    """
    from torch import nn

    from tllib_ancon import methods
    from tllib_ancon.data.sampling import hold_out

    sizes = {"num_samples": 2 * args.adapt_batch_size, "num_classes": 2, "feature_dim": 1, "total_steps": 1}
    methods.create(args.method, head=nn.Linear(1, 2), **sizes, **_method_options(args))
    try:
        AdaptationOptions(**_options(args))
    except UserError as error:
        raise UserError(f"the adaptation after the first stage: {error}") from error
    if num_images is not None:
        adapted, _ = hold_out(num_images, args.adapt_hold_out, args.seed)
        if len(adapted) < args.adapt_batch_size:
            raise UserError(
                f"the target's {len(adapted)} images to adapt on are fewer than one batch of {args.adapt_batch_size}; "
                "pass a smaller --adapt-batch-size"
            )


def adapt_arguments(given: Mapping[str, Any], checkpoint: Path, log: Path) -> argparse.Namespace:
    """The arguments of ``adapt`` for the second stage.

    Args:
        given: arguments of the whole command; of a name that both stages have, the one with the prefix counts
        checkpoint: what the first stage left
        log: run directory of the second stage
    """
    from tllib_ancon.cli.main import parse

    args = parse(["adapt", given["root"], "-t", *given["target"], "--checkpoint", str(checkpoint), "--log", str(log)])
    for name in set(vars(args)) - set(OF_ADAPT_ALONE):
        for candidate in (f"{PREFIX}_{name}", name):
            if given.get(candidate) is not None:
                setattr(args, name, given[candidate])
                break
    return args


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of :class:`AdaptationOptions` that the command has."""
    given = vars(_unprefixed(args))
    return {option.name: given[option.name] for option in fields(AdaptationOptions) if option.name in given}


def _method_options(args: argparse.Namespace) -> dict[str, Any]:
    return arguments.method_options(_unprefixed(args))


def _unprefixed(args: argparse.Namespace) -> argparse.Namespace:
    """The second stage's arguments under the names that ``adapt`` gives them."""
    prefix = f"{PREFIX}_"
    prefixed = {name.removeprefix(prefix): value for name, value in vars(args).items() if name.startswith(prefix)}
    return argparse.Namespace(**{**vars(args), **prefixed})


class _Prefixed:
    """A parser or a group whose flags, or only some of them, get the prefix; short flags are left out then."""

    def __init__(self, parser: Any, only: Collection[str] | None = None):
        self.parser = parser
        self.only = only

    def add_argument_group(self, title: str) -> _Prefixed:
        return _Prefixed(self.parser.add_argument_group(f"adaptation: {title}"), self.only)

    def add_argument(self, *flags: str, **options: Any) -> None:
        if self.only is None or set(flags) & set(self.only):
            flags = tuple(f"--{PREFIX}-{flag[2:]}" for flag in flags if flag.startswith("--"))
            if "dest" in options:
                options["dest"] = f"{PREFIX}_{options['dest']}"
        self.parser.add_argument(*flags, **options)
