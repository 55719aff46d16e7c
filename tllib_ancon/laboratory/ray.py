"""The Ray engine: the runs of a plan as tasks of Ray on the machines of a cluster. Ray schedules them, and makes those
of a lost node again elsewhere."""

import os
import signal
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import ray

from tllib_ancon.laboratory.engine import EngineConfig, make
from tllib_ancon.laboratory.plan import PlannedRun
from tllib_ancon.runtime.errors import BadSetting, named

CANCEL_EVERY = 5.0
"""Seconds after which a cancellation that had no effect is repeated."""
END_WITHIN = 300.0
"""Seconds in which a run that was cancelled ends its step."""


class RayEngine:
    """Makes runs as tasks of Ray, each with its cores, and with a GPU if the cluster has any. This process is a driver
    of Ray until :meth:`end`."""

    def __init__(self, config: EngineConfig):
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            ray.init(address=config.address, log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError, SystemExit) as error:  # Ray prints the reason
            raise BadSetting(
                f"{named('address')} {config.address}: no cluster answers",
                "give that of `ray start --head`, or auto on a machine of the cluster",
                setting="address",
            ) from error
        resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
        most_cores = max(of_node.get("CPU", 0) for of_node in resources)
        if config.cpus_per_run > most_cores:  # for which Ray would wait, and print nothing
            raise BadSetting(
                f"{named('cpus_per_run')} {config.cpus_per_run}: no node of the cluster has as many for a run",
                f"give at most {most_cores:g}",
                setting="cpus_per_run",
            )
        variables = {"OMP_NUM_THREADS": str(config.cpus_per_run)}
        has_gpus = any("GPU" in of_node for of_node in resources)
        if not has_gpus:
            variables["CUDA_VISIBLE_DEVICES"] = ""
        self._make = ray.remote(
            num_cpus=config.cpus_per_run, num_gpus=int(has_gpus), runtime_env={"env_vars": variables}, max_retries=-1
        )(_make_on_node)
        self._tasks: list[Any] = []

    def submit(self, run: PlannedRun) -> Future[str | None]:
        task = self._make.remote(run, Path.cwd())
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
        ray.shutdown()


def _make_on_node(run: PlannedRun, folder: Path) -> str | None:
    """On a node: make one run. Ray cancels it by SIGINT, which is ignored where Ray was started in the background."""
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return make(run)
