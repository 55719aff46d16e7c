"""Engines: what makes the runs of a plan, each by its own command in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tllib_ancon.errors import UserError
from tllib_ancon.paper.driver import Failure
from tllib_ancon.paper.plan import Run
from tllib_ancon.settings import Settings, setting


class Engine(Protocol):
    @property
    def at_a_time(self) -> int:
        """Runs that are made at the same time."""

    def execute(self, runs: Sequence[Run], root: str, out: Path, say: Callable[[str], None]) -> list[Failure]:
        """Make the runs that are not finished, each after the run that it starts from.

        A run that was cut off goes on where it was, because its command does. A run that fails stops no other, except
        those that start from it.

        Args:
            runs: of :meth:`~tllib_ancon.paper.plan.Plan.runs`
            root: folder of the dataset
            out: folder of the run directories
            say: shows one line of progress

        Raises:
            Interrupted: SIGTERM came; the commands that were running have been sent it too and have ended
        """


@dataclass(frozen=True)
class EngineConfig(Settings):
    """Which engine, and what a run gets of its machines."""

    engine: str = setting(
        "local",
        "what makes the runs; local: processes on this machine; ray: tasks of Ray, here or on a cluster",
        choices=("local", "ray"),
        group="engine",
        common=True,
    )
    jobs: int | None = setting(
        None,
        "runs at a time on this machine; by default as many as its GPUs hold, 1 without a GPU",
        at_least=1,
        metavar="N",
        group="engine",
        common=True,
    )
    gpus_per_run: float | None = setting(
        None,
        "GPUs of a run: a whole number or a share of one; by default 1, less if more runs are made at a time "
        "than there are GPUs",
        at_least=0,
        metavar="X",
        group="engine",
    )
    cpus_per_run: int | None = setting(
        None,
        "threads of a run on the CPU; by default 1 with Ray, and elsewhere its share where runs have GPUs",
        at_least=1,
        at_most=4096,
        metavar="N",
        group="engine",
    )
    address: str | None = setting(
        None,
        "address of a Ray cluster: host:port, or auto for the one that this machine belongs to; by default "
        "$RAY_ADDRESS, or else this machine alone",
        group="engine",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        gpus = self.gpus_per_run
        if gpus is not None and gpus > 1 and gpus != int(gpus):
            raise UserError(f"`gpus_per_run` must be a whole number or below 1, got {gpus}")
        if self.engine == "ray" and self.jobs is not None:
            raise UserError("`jobs` is for `engine=local`: Ray makes as many runs at a time as its nodes hold")
        if self.engine == "local" and self.address is not None:
            raise UserError(f"`address` {self.address} needs `engine=ray`")


@contextmanager
def started(config: EngineConfig) -> Iterator[Engine]:
    """The engine that makes runs in this context.

    Raises:
        UserError: Ray is missing, or does not answer; a run needs more than the machines have
    """
    if config.engine == "local":
        from tllib_ancon.paper.engines.local import local

        yield local(config)
        return
    try:
        from tllib_ancon.paper.engines.ray_engine import connected
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise UserError("`engine=ray` needs Ray: pip install 'tllib-ancon[ray]'") from None
    with connected(config) as engine:
        yield engine


def runs_on(gpus: int, per_run: float) -> int:
    """Runs at a time on so many GPUs: a share of a GPU is of one GPU."""
    return int(gpus // per_run) if per_run >= 1 else gpus * int(1 / per_run + 1e-9)
