"""``tllib-ancon pretrain``: train a source model."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from tllib_ancon.cli import stages
from tllib_ancon.cli.flags import checked
from tllib_ancon.cli.parser import Parser
from tllib_ancon.config import PretrainConfig

LOG = "runs/source"


def add_arguments(parser: Parser) -> None:
    stages.pretrain_flags().add(parser)
    stages.add_config_argument(parser)
    parser.epilog = (
        "An epoch of erm is a pass over the source, unless --iters-per-epoch says otherwise; cdan's and mdd's learning "
        "rate is lr (1 + gamma step)^-decay."
    )


def run(args: argparse.Namespace) -> int:
    config = configured(args)
    stages.require_paths(config)

    from tllib_ancon.training import launch
    from tllib_ancon.training.pretrain import pretrain

    with checked(stages.pretrain_flags()):
        result = pretrain(config)
    if launch.is_first():
        print(f"{summary(result)}; model in {config.log}")
    return 0


def configured(args: argparse.Namespace) -> PretrainConfig:
    """The configuration that these arguments make.

    Raises:
        UserError: an argument that is missing or refused
    """
    flags = stages.pretrain_flags()
    with checked(flags):
        file = stages.from_file(args, PretrainConfig)
        config: PretrainConfig = stages.configured(
            PretrainConfig, args.config, file, {"log": LOG, **file, **flags.given(args)}
        )
        stages.require(config, flags, "pretrain", "root", "source")
        return config


def summary(result: Mapping[str, Any]) -> str:
    """What came out, in one line; of CDAN and MDD the accuracy on the target, where it has labels."""
    selected = result["selected"]
    text = f"{result['method']}, epoch {selected['epoch']}"
    if "accuracy" in selected:
        images = "held-out source images" if result["method"] == "erm" else "the target"
        text += f": accuracy {selected['accuracy']:.2f} % on {images}"
    return text
