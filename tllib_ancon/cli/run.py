"""``tllib-ancon run``: train a source model and adapt it."""

from __future__ import annotations

import argparse

from tllib_ancon.cli import pretrain, stages
from tllib_ancon.cli.adapt import draw
from tllib_ancon.cli.flags import Flags, checked
from tllib_ancon.cli.parser import Parser
from tllib_ancon.config import AdaptConfig, PretrainConfig

LOG = "runs/both"


def add_arguments(parser: Parser) -> None:
    _first_flags().add(parser)
    stages.second_stage_flags().add(parser)
    stages.add_config_argument(parser)
    parser.epilog = (
        "A bare flag is the first stage's, --adapt-X the second's; both share the dataset, the network, the pictures "
        "and the seed. In a configuration file the second stage's settings stand in the table [adapt]."
    )


def run(args: argparse.Namespace) -> int:
    config = configured(args)
    stages.require_paths(config)

    from tllib_ancon.training import launch
    from tllib_ancon.training.adapt import adapt
    from tllib_ancon.training.progress import result_summary

    with checked(stages.second_stage_flags(), pretrain=_first_flags()):
        result = adapt(config=config)
    if launch.is_first():
        draw(result)
        print(f"{pretrain.summary(result.summary['pretrain'])}\n{result_summary(result.summary)}")
        print(f"both stages in {config.log}")
    return 0


def configured(args: argparse.Namespace) -> AdaptConfig:
    """The configuration of both stages.

    Raises:
        UserError: bad input to one of the stages, found before the first begins
    """
    first, second = _first_flags(), stages.second_stage_flags()
    with checked(first):
        file = stages.from_file(args, PretrainConfig, tables=("adapt",))
        table = file.pop("adapt", {})
        given = {"log": LOG, **file, **first.given(args)}
        source = stages.configured(PretrainConfig, args.config, file, given)
        stages.require(source, first, "run", "root", "source", "target")
    with checked(second, "the adaptation after the first stage: "):
        return stages.second_stage(source, {**table, **second.given(args)}, log=source.log)


def _first_flags() -> Flags:
    return stages.pretrain_flags(names={"method": "pretrain"}, needed=("root", "data", "source", "target"))
