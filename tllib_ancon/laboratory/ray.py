"""The Ray engine: the runs of a plan as tasks of Ray, on one machine or many. Ray schedules them, and makes those of a
lost node again elsewhere."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as OnNode

from tllib_ancon.laboratory.engine import EngineConfig, make
from tllib_ancon.laboratory.plan import PlannedRun
from tllib_ancon.runtime.errors import BadSetting, UserError, named, one_line

ANSWER_WITHIN = 60.0
"""Seconds in which a cluster answers, and a node of it."""
CANCEL_EVERY = 5.0
"""Seconds after which a cancellation that had no effect is repeated."""
END_WITHIN = 300.0
"""Seconds in which a run that was cancelled ends its step."""


@contextmanager
def connected(config: EngineConfig) -> Iterator[RayEngine]:
    """The Ray engine; this process is a driver of Ray until the block ends."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = config.address or os.environ.get("RAY_ADDRESS")
    if address is not None:
        _expect_answer(address)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise UserError(
            f"Ray could not be started: {one_line(error)}", f"repair it, or run without {named('engine', 'ray')}"
        ) from error
    signal.signal(signal.SIGTERM, handler)  # Ray's own ends the process
    try:
        yield RayEngine(config)
    finally:
        ray.shutdown()


def _expect_answer(address: str) -> None:
    """A process of its own asks: Ray's own attempt lasts two minutes, and ends the process that makes it."""
    code = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR')"
    command = [sys.executable, "-c", code, address]
    try:
        subprocess.run(command, capture_output=True, timeout=ANSWER_WITHIN, check=True)
    except subprocess.SubprocessError as error:
        raise BadSetting(
            f"{named('address')} {address}: no cluster answers",
            "give that of `ray start --head`, or auto on a machine of the cluster",
            setting="address",
        ) from error


class RayEngine:
    """Makes runs as tasks of Ray, each with its cores and its share of a GPU."""

    def __init__(self, config: EngineConfig):
        self._tasks: list[Any] = []
        most_cores = max(node["Resources"].get("CPU", 0) for node in living_nodes())
        if config.cpus_per_run > most_cores:
            raise BadSetting(
                f"{named('cpus_per_run')} {config.cpus_per_run}: no node of the cluster has as many for a run",
                f"give at most {most_cores:g}",
                setting="cpus_per_run",
            )
        variables = {"OMP_NUM_THREADS": str(config.cpus_per_run)}
        gpus = config.gpus_per_run
        if gpus == 0 or "GPU" not in ray.cluster_resources():  # type: ignore[no-untyped-call]
            gpus = 0
            variables["CUDA_VISIBLE_DEVICES"] = ""
        environment = {"env_vars": variables}
        self._make = ray.remote(num_cpus=config.cpus_per_run, num_gpus=gpus, runtime_env=environment, max_retries=-1)(
            _make_on_node
        )

    def submit(self, run: PlannedRun, out: Path) -> Future[str | None]:
        task = self._make.remote(run, Path.cwd(), out)
        self._tasks.append(task)
        return task.future()

    def end(self) -> None:
        """Cancel the tasks; Ray's cancellation of a task that runs may be lost, so that it is repeated."""
        running = self._tasks
        give_up = time.monotonic() + END_WITHIN
        while running and time.monotonic() < give_up:
            for task in running:
                ray.cancel(task)
            _, running = ray.wait(running, num_returns=len(running), timeout=CANCEL_EVERY)


def _make_on_node(run: PlannedRun, folder: Path, out: Path) -> str | None:
    """On a node: make one run. Ray cancels it by SIGINT, which is ignored where Ray was started in the background."""
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return make(run, out)


def living_nodes() -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in nodes if node["Alive"]]


def require_shared(root: str, out: Path) -> None:
    """Raise an error for a node that does not answer or does not share the working folder, the data and ``out``."""
    task = ray.remote(num_cpus=0, max_retries=0)(_missing_on_node)
    with NamedTemporaryFile(dir=out, prefix=".shared-") as probe:
        paths = {Path.cwd(): Path.cwd(), Path(root): Path(root).absolute(), out: Path(probe.name).absolute()}
        answers = {}
        for node in living_nodes():
            on_node = task.options(scheduling_strategy=OnNode(node["NodeID"], soft=False))
            answers[node["NodeName"]] = on_node.remote(paths)
        for name, answer in answers.items():
            try:
                missing = ray.get(answer, timeout=ANSWER_WITHIN)
            except (GetTimeoutError, RayError) as error:
                advice = "repair it, install the same tllib-ancon there, or remove it from the cluster"
                raise UserError(f"node {name} does not answer ({one_line(error)})", advice) from error
            if missing:
                raise UserError(
                    f"node {name} does not share the folder {missing[0]}", "every node needs the same one at this path"
                )


def _missing_on_node(paths: Mapping[Path, Path]) -> list[Path]:
    """On a node: the folders of which it does not see these paths."""
    return [folder for folder, path in paths.items() if not path.exists()]
