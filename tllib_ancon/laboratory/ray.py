"""The Ray engine: the runs of a plan as tasks of Ray, on one machine or many. Ray schedules them, and makes those of a
lost node again elsewhere."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as OnNode

from tllib_ancon._version import __version__
from tllib_ancon.laboratory.engine import UNLIMITED, EngineConfig, make
from tllib_ancon.laboratory.plan import PlannedRun
from tllib_ancon.runtime.errors import BadSetting, UserError, named, one_line

LOCAL = "local"
"""The address of a Ray of this machine alone, which ends with the command."""
ANSWER_WITHIN = 60.0
"""Seconds in which a cluster answers, and a node of it."""
CANCEL_EVERY = 5.0
"""Seconds after which a cancellation that had no effect is repeated."""
END_WITHIN = 300.0
"""Seconds in which a run that was cancelled ends its step."""


@contextmanager
def connected(config: EngineConfig, root: str) -> Iterator[RayEngine]:
    """The Ray engine; this process is a driver of Ray until the block ends."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = config.address or os.environ.get("RAY_ADDRESS") or LOCAL
    if address != LOCAL:
        _expect_answer(address)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise UserError(
            f"Ray could not be started: {one_line(error)}", f"repair it, or run without {named('engine', 'ray')}"
        ) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # Ray's own ends the process
    try:
        yield RayEngine(config, root)
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
    """Makes runs as tasks of Ray, each with its cores and its share of a GPU. All nodes share the folder ``root``."""

    most_running = UNLIMITED

    def __init__(self, config: EngineConfig, root: str):
        self._root = root
        self._running: list[Any] = []
        nodes = [node["Resources"] for node in _nodes()]
        gpus = config.gpus_per_run
        if not any("GPU" in resources for resources in nodes):
            gpus = 0
        cores = [resources.get("CPU", 0) for resources in nodes if resources.get("GPU", 0) >= gpus]
        if config.cpus_per_run > max(cores):
            raise BadSetting(
                f"{named('cpus_per_run')} {config.cpus_per_run}: no node of the cluster has as many for a run",
                f"give at most {max(cores):g}",
                setting="cpus_per_run",
            )
        variables = {"OMP_NUM_THREADS": str(config.cpus_per_run)}
        if gpus == 0:
            variables["CUDA_VISIBLE_DEVICES"] = ""
        environment = {"env_vars": variables}
        self._task = ray.remote(num_cpus=config.cpus_per_run, num_gpus=gpus, runtime_env=environment, max_retries=-1)(
            _make_on_node
        )

    def check_shared(self, out: Path) -> None:
        """Raise an error for a node that does not answer, has another version, or does not share the folders."""
        probe = out / f".shared-{uuid.uuid4().hex}"
        probe.write_text(probe.name, encoding="utf-8")
        task = ray.remote(num_cpus=0, max_retries=0)(_unfit)
        answers = {}
        try:
            for node in _nodes():
                on_node = task.options(scheduling_strategy=OnNode(node["NodeID"], soft=False))
                answers[node["NodeName"]] = on_node.remote(__version__, Path.cwd(), self._root, probe)
            for name, answer in answers.items():
                reason = _answer(answer)
                if reason is not None:
                    raise UserError(f"node {name} {reason}")
        finally:
            probe.unlink()

    def submit(self, run: PlannedRun, out: Path) -> Future[str | None]:
        task = self._task.remote(run, Path.cwd(), out)
        self._running.append(task)
        future: Future[str | None] = task.future()
        return future

    def end(self) -> None:
        """Cancel the tasks; Ray's cancellation of a task that runs may be lost, so that it is repeated."""
        give_up = time.monotonic() + END_WITHIN
        _, running = ray.wait(self._running, num_returns=len(self._running), timeout=0)
        while running and time.monotonic() < give_up:
            for task in running:
                ray.cancel(task)
            _, running = ray.wait(running, num_returns=len(running), timeout=CANCEL_EVERY)


def _make_on_node(run: PlannedRun, folder: Path, out: Path) -> str | None:
    """On a node: make one run. Ray cancels it by SIGINT, which is ignored where Ray was started in the background."""
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return make(run, out)


def _nodes() -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in nodes if node["Alive"]]


def _answer(answer: Any) -> str | None:
    """Why a node is unfit; None for a fit one."""
    try:
        reason: str | None = ray.get(answer, timeout=ANSWER_WITHIN)
        return reason
    except GetTimeoutError:
        return f"does not answer in {ANSWER_WITHIN:g} s; repair it or remove it from the cluster"
    except RayError as error:
        *_, last_line = str(error).strip().splitlines()
        return f"cannot run this command ({one_line(last_line)}); install the same tllib-ancon on every node"


def _unfit(version: str, folder: Path, root: str, probe: Path) -> str | None:
    """On a node: why it cannot make the runs of a benchmark that this version of the package began in ``folder``."""
    if version != __version__:
        return f"has tllib-ancon {__version__}, this one {version}; install the same tllib-ancon on every node"
    advice = "every node needs the same one at this path"
    for shared in (folder, Path(root)):
        if not shared.is_dir():
            return f"does not share the folder {shared}: {advice}"
        os.chdir(folder)
    if not probe.is_file():
        return f"does not share the folder {probe.parent}: {advice}"
    return None
