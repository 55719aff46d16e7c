"""``tllib-ancon predict``: the predictions of a model on pictures, one row for each picture."""

from __future__ import annotations

import argparse
import sys

from tllib_ancon.cli import stages
from tllib_ancon.cli.flags import Flags, checked
from tllib_ancon.cli.parser import Parser
from tllib_ancon.config import STANDARD_OUTPUT, PredictionsConfig
from tllib_ancon.settings import settings_of, types_of


def add_arguments(parser: Parser) -> None:
    _flags().add(parser)
    stages.add_config_argument(parser)


def run(args: argparse.Namespace) -> int:
    with checked(_flags()):
        file = stages.from_file(args, PredictionsConfig)
        config = stages.configured(PredictionsConfig, args.config, file, {**file, **_flags().given(args)})
        stages.require(config, _flags(), "predict", "root", "checkpoint")
        stages.require_paths(config)

        from tllib_ancon.training import launch
        from tllib_ancon.training.prediction_files import write_predictions

        counts = write_predictions(config)
    if launch.is_first() and not config.quiet and config.out != STANDARD_OUTPUT:
        unread = f", {counts['errors']} of them could not be read" if counts["errors"] else ""
        print(f"{counts['rows']} pictures{unread}; predictions in {config.out}", file=sys.stderr)
    return 0


def _flags() -> Flags:
    settings, kinds = settings_of(PredictionsConfig), types_of(PredictionsConfig)
    return Flags(settings, kinds, positional=("root",), needed=("root", "checkpoint")).without("source")
