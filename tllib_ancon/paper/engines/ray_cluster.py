"""A cluster of Ray: connecting to it, what its nodes have, and whether they share the folders of the runs."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tllib_ancon._version import __version__
from tllib_ancon.errors import UserError, one_line
from tllib_ancon.paper.engines import runs_on

ANSWER_WITHIN = 60.0
"""Seconds in which a cluster answers, and a node of it."""

LOCAL = "local"
"""The address of a Ray of this machine alone, which ends with the command."""


@contextmanager
def connection(address: str | None) -> Iterator[None]:
    """In this context this process is a driver of Ray.

    Raises:
        UserError: nobody answers at the address
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = address or os.environ.get("RAY_ADDRESS") or LOCAL
    if address != LOCAL:
        _expect_answer(address)
    try:
        with _handlers_kept():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise UserError(f"Ray could not be started: {one_line(error)}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _expect_answer(address: str) -> None:
    """A process of its own asks: Ray's own attempt lasts two minutes, and ends the process that makes it."""
    ask = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR')"
    advice = "give that of `ray start --head`, or auto on a machine of the cluster"
    try:
        asked = subprocess.run(
            [sys.executable, "-c", ask, address], capture_output=True, text=True, timeout=ANSWER_WITHIN, check=False
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"`address` {address}: no cluster answers in {ANSWER_WITHIN:g} s; {advice}") from None
    if asked.returncode != 0:
        reason = one_line((asked.stderr.strip().splitlines() or ["no cluster answers"])[-1].partition(": ")[2])
        raise UserError(f"`address` {address}: {reason}; {advice}")


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Ray handles SIGTERM by ending the process; the handler of the command stays."""
    previous = signal.getsignal(signal.SIGTERM)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, previous)


def nodes() -> list[dict[str, Any]]:
    """Those that live, as Ray describes them."""
    return [node for node in known_nodes() if node["Alive"]]


def known_nodes() -> list[dict[str, Any]]:
    """Those that live and those that were lost."""
    found: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return found


def called(node: dict[str, Any]) -> str:
    """The name that a node was given, or that of its host."""
    given: str = node["NodeName"]
    host: str = node["NodeManagerHostname"]
    return host if given == node["NodeManagerAddress"] else given


def gpus() -> int:
    """GPUs of the whole cluster."""
    return sum(_gpus(node) for node in nodes())


def runs_at_a_time(cpus: int, gpus: float) -> int:
    """How many runs the nodes hold that need so much each.

    Raises:
        UserError: none, because no node has as much
    """
    if gpus and not sum(runs_on(_gpus(node), gpus) for node in nodes()):
        most = max(_gpus(node) for node in nodes())
        raise UserError(f"`gpus_per_run` {gpus:g}: no node of the cluster has as many, the most are {most}")
    runs = sum(min(_cpus(node) // cpus, runs_on(_gpus(node), gpus) if gpus else _cpus(node)) for node in nodes())
    if not runs:
        most = max(_cpus(node) for node in nodes())
        raise UserError(f"`cpus_per_run` {cpus}: no node of the cluster has as many for a run, the most are {most}")
    return runs


def _cpus(node: dict[str, Any]) -> int:
    return int(node["Resources"].get("CPU", 0))


def _gpus(node: dict[str, Any]) -> int:
    return int(node["Resources"].get("GPU", 0))


def check_shared(root: str, out: Path) -> None:
    """Every node sees the folder of this process, that of the dataset, and a file that is written now to ``out``.

    Raises:
        UserError: a node that sees another disk, lacks this package or has another version of it, or does not answer
    """
    probe = out / f".shared-{uuid.uuid4().hex}"
    probe.write_text(probe.name, encoding="utf-8")
    try:
        look = ray.remote(num_cpus=0, max_retries=0)(missing_folder)
        looks = [
            (node, look.options(scheduling_strategy=on_node(node["NodeID"])).remote(str(Path.cwd()), root, probe))
            for node in nodes()
        ]
        for node, answer in looks:
            _expect_all_seen(called(node), answer)
    finally:
        probe.unlink()


def on_node(identity: str) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(identity, soft=False)


def missing_folder(folder: str, root: str, probe: Path) -> tuple[str | None, str]:
    """On a node: the first folder that it does not see, and the version of this package."""
    if not Path(folder).is_dir():
        return folder, __version__
    os.chdir(folder)
    if not Path(root).is_dir():
        return root, __version__
    seen = probe.is_file() and probe.read_text(encoding="utf-8") == probe.name
    return None if seen else str(probe.parent), __version__


def _expect_all_seen(name: str, answer: Any) -> None:
    try:
        missing, version = ray.get(answer, timeout=ANSWER_WITHIN)
    except GetTimeoutError:
        raise UserError(f"node {name} does not answer in {ANSWER_WITHIN:g} s") from None
    except RayError as error:
        raise UserError(f"node {name}: {last_line(error)}; install the same tllib-ancon on every node") from error
    if missing is not None:
        raise UserError(f"node {name} does not share the folder {missing}: every node needs the same one at this path")
    if version != __version__:
        raise UserError(
            f"node {name} has tllib-ancon {version}, this one {__version__}; install the same on every node"
        )


def last_line(error: Exception) -> str:
    """Of a traceback that Ray carried here."""
    return one_line(str(error).strip().splitlines()[-1])
