"""The command line in one of the processes that ``torchrun`` or ``accelerate launch`` started."""

from __future__ import annotations

import argparse
import atexit
import os
import sys
import warnings

from tllib_ancon.errors import ProcessLost, UserError

COMMANDS = ("adapt", "pretrain", "run", "evaluate", "predict")
"""Those that divide their work over processes."""


def started() -> bool:
    """Whether a launcher started this process as one of several."""
    return "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", 1)) > 1


def may_speak() -> bool:
    """Whether this process is to say what ends the run: of several the first that asks."""
    if not started():
        return True
    from tllib_ancon.training.launch import is_first_to_speak

    return is_first_to_speak()


def run(args: argparse.Namespace) -> int:
    """Run a command as one of several processes, of which the first shows progress and results.

    Raises:
        UserError: a command that does not divide its work
        ProcessLost: another process ended
    """
    from tllib_ancon.training import launch

    command = args.module.__name__.rpartition(".")[2]
    if command not in COMMANDS:
        raise UserError(
            f"{command} runs in one process, and {launch.launched()} were started; use --nproc-per-node 1 or no "
            f"launcher. Many can share the work of {', '.join(COMMANDS)}"
        )
    launch.join()
    if not launch.is_first():
        warnings.simplefilter("ignore")
    try:
        status: int = args.module.run(args)
    except RuntimeError as error:
        if launch.is_lost_connection(error):
            raise ProcessLost from error
        raise
    launch.leave()
    return status


class LastAtExit:
    """Ends the process after all that was registered later for its exit, and before the interpreter ends.

    DistributedDataParallel keeps gloo's threads beyond ``destroy_process_group``, and a thread that asks for an
    interpreter which is ending aborts the process.

    Attributes:
        status (int, optional): with which the process ends; nothing is done as long as it is None
    """

    def __init__(self) -> None:
        self.status: int | None = None
        atexit.register(self._end)

    def _end(self) -> None:
        if self.status is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.status)
