"""``tllib-ancon adapt``: adapt a source model to unlabelled images."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tllib_ancon.cli import stages
from tllib_ancon.cli.flags import checked
from tllib_ancon.cli.parser import Parser
from tllib_ancon.config import AdaptConfig

if TYPE_CHECKING:
    from tllib_ancon.training.adapt import AdaptationResult

LOG = "runs/adapted"


def add_arguments(parser: Parser) -> None:
    stages.adapt_flags().add(parser)
    stages.add_config_argument(parser)
    parser.epilog = (
        "In many processes: torchrun --nproc-per-node N -m -- tllib_ancon adapt ... (the -- keeps torchrun from taking "
        "--log for one of its own), or accelerate launch --multi_gpu --num_processes N -m tllib_ancon adapt ..."
    )


def run(args: argparse.Namespace) -> int:
    config = configured(args)
    stages.require_paths(config)

    from tllib_ancon.training import launch
    from tllib_ancon.training.adapt import adapt
    from tllib_ancon.training.progress import result_summary

    with checked(stages.adapt_flags()):
        result = adapt(config=config)
    if launch.is_first():
        draw(result)
        print(result_summary(result.summary))
    return 0


def draw(result: AdaptationResult) -> None:
    """Draw the numbers of each epoch to ``visualize/epochs.png`` in the run directory, unless the run is quiet."""
    from tllib_ancon.report.curves import WITH_LABELS, WITHOUT_LABELS, draw_curves

    if result.config.quiet or result.config.log is None:
        return
    measures = WITH_LABELS if "accuracy" in result.metrics[0] else WITHOUT_LABELS
    folder = Path(result.config.log) / "visualize"
    folder.mkdir(exist_ok=True)
    draw_curves({result.config.method: [result.metrics]}, folder / "epochs.png", measures)


def configured(args: argparse.Namespace) -> AdaptConfig:
    """The configuration that these arguments make.

    Raises:
        UserError: an argument that is missing or refused
    """
    flags = stages.adapt_flags()
    with checked(flags):
        file = stages.from_file(args, AdaptConfig)
        config: AdaptConfig = stages.configured(
            AdaptConfig, args.config, file, {"log": LOG, **file, **flags.given(args)}
        )
        stages.require(config, flags, "adapt", "root", "target", "checkpoint")
        return config
