"""The run directory, its seed, its processes and its output."""

from typing import Annotated

from pydantic import Field

from tllib_ancon.config.settings import Flag, Settings
from tllib_ancon.config.types import Count, Seed, Threads


class MachineConfig(Settings):
    """What a command uses of the machine, and what it shows."""

    FLAG = Flag(group="run")

    threads: Annotated[Threads | None, Flag(decides=False)] = None
    """threads of PyTorch on the CPU; by default PyTorch's choice; results repeat exactly with the same number"""
    workers: Annotated[Count, Flag("-j", decides=False)] = 2
    """processes that load images; CDAN and MDD read two sets of images at once and start as many for each"""
    quiet: Annotated[bool, Flag(decides=False)] = False
    """show only errors and results"""


class RunConfig(MachineConfig):
    """The run directory, its seed and its output."""

    FLAG = Flag(group="run")

    log: Annotated[str | None, Flag(metavar="DIR", common=True, decides=False)] = None
    """run directory; by default runs/source or runs/adapted by the command, and in Python none, which stores
    nothing on disk"""
    overwrite: Annotated[bool, Flag(decides=False)] = False
    """replace the run that is in the run directory; leave it out to resume the new run"""
    seed: Annotated[Seed, Flag(common=True)] = 0
    """seed of every random number"""
    print_freq: Annotated[int, Flag("-p", decides=False)] = Field(20, ge=1)
    """steps between two readings of the loss for the progress line"""


class JsonConfig(Settings):
    """Where the results go, beside the terminal."""

    json_file: Annotated[str | None, Flag("--json", metavar="FILE", group="output", common=True)] = None
    """JSON file of the results"""
