"""A command in one of the processes that ``torchrun`` or ``accelerate launch`` started."""

from __future__ import annotations

import argparse
import warnings

from tllib_ancon.errors import ProcessLost, UserError
from tllib_ancon.self_training import processes
from tllib_ancon.training import launch

COMMANDS = ("adapt", "pretrain", "evaluate")
"""Those that divide their work over processes, if their method can."""


def run(args: argparse.Namespace) -> int:
    """Run a command as one of many processes, of which the first alone speaks.

    Raises:
        UserError: a command that does not divide its work
        ProcessLost: another process ended
    """
    command = args.module.__name__.rpartition(".")[2]
    if command not in COMMANDS:
        raise UserError(
            f"{command} runs in one process, and {launch.launched()} were started; use --nproc-per-node 1 or no "
            f"launcher. Many can share the work of {', '.join(COMMANDS)}"
        )
    launch.join()
    if processes.rank() > 0:
        warnings.simplefilter("ignore")
    try:
        status = args.module.run(args)
    except RuntimeError as error:
        if launch.is_lost_connection(error):
            raise ProcessLost from error
        raise
    launch.leave()
    return status
