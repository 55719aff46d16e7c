"""``tllib-ancon export``: a trained model for use elsewhere."""

from __future__ import annotations

import argparse

from tllib_ancon.cli import stages
from tllib_ancon.cli.flags import Flags, checked
from tllib_ancon.cli.parser import Parser
from tllib_ancon.config import ExportConfig
from tllib_ancon.settings import settings_of, types_of


def add_arguments(parser: Parser) -> None:
    _flags().add(parser)
    stages.add_config_argument(parser)


def run(args: argparse.Namespace) -> int:
    with checked(_flags()):
        file = stages.from_file(args, ExportConfig)
        config = stages.configured(ExportConfig, args.config, file, {**file, **_flags().given(args)})

        from tllib_ancon.training.export import export

        export(config)
    print(f"{config.format} of {config.run} in {config.out}")
    return 0


def _flags() -> Flags:
    required = ("run", "out")
    return Flags(settings_of(ExportConfig), types_of(ExportConfig), positional=("run",), required=required)
