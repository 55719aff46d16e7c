"""``tllib-ancon certify``: which of a run's two models is better, by labels of a few images on which they disagree."""

from __future__ import annotations

import argparse

from tllib_ancon.cli import stages
from tllib_ancon.cli.flags import Flags, checked
from tllib_ancon.cli.parser import Parser
from tllib_ancon.config import CertifyConfig
from tllib_ancon.settings import settings_of, types_of


def add_arguments(parser: Parser) -> None:
    _flags().add(parser)
    stages.add_config_argument(parser)


def run(args: argparse.Namespace) -> int:
    with checked(_flags()):
        file = stages.from_file(args, CertifyConfig)
        config = stages.configured(CertifyConfig, args.config, file, {**file, **_flags().given(args)})

        from tllib_ancon.certify.run import certify_run

        certify_run(config, lambda line: print(line, flush=True))
    return 0


def _flags() -> Flags:
    return Flags(settings_of(CertifyConfig), types_of(CertifyConfig), positional=("run",), required=("run",))
