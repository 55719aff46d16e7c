"""The Ray engine: the runs of a plan as tasks of Ray, on one machine or many. Ray schedules them, and makes those of a
lost node again elsewhere."""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.queue import Queue
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as OnNode

from tllib_ancon._version import __version__
from tllib_ancon.laboratory.local import Command, Engine, EngineConfig, Environment, runs_on
from tllib_ancon.laboratory.plan import PlannedRun
from tllib_ancon.runtime.errors import BAD_INPUT, BadSetting, UserError, in_words, named, one_line
from tllib_ancon.runtime.types import Show

LOCAL = "local"
"""The address of a Ray of this machine alone, which ends with the command."""
ANSWER_WITHIN = 60.0
"""Seconds in which a cluster answers, and a node of it."""
POLL = 0.5
"""Seconds between two looks at what has begun and what has ended."""
CANCEL_EVERY = 5.0
"""Seconds after which a cancellation that had no effect is repeated."""
END_WITHIN = 300.0
"""Seconds in which a command that was sent SIGTERM ends its step."""
SAME = "install the same tllib-ancon on every node"
MESSAGES = "ray.txt"
"""In the folder of the runs: what Ray has to say, of nodes that it lost among others."""


@contextmanager
def connected(config: EngineConfig) -> Iterator[_OnRay]:
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
        yield _OnRay(config)
    finally:
        ray.shutdown()


def _expect_answer(address: str) -> None:
    """A process of its own asks: Ray's own attempt lasts two minutes, and ends the process that makes it."""
    code = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR')"
    command = [sys.executable, "-c", code, address]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_WITHIN, check=False)
    except subprocess.TimeoutExpired:
        reason = f"no cluster answers in {ANSWER_WITHIN:g} s"
    else:
        if answer.returncode == 0:
            return
        *_, last_line = answer.stderr.strip().splitlines() or [": no cluster answers"]
        reason = one_line(last_line.partition(": ")[2])
    raise BadSetting(
        f"{named('address')} {address}: {reason}",
        "give that of `ray start --head`, or auto on a machine of the cluster",
        setting="address",
    )


class _OnRay(Engine):
    """Makes runs as tasks of Ray, each with its CPUs and GPUs. Ray makes as many at a time as the nodes hold."""

    most_started = math.inf

    def __init__(self, config: EngineConfig):
        resources = [node["Resources"] for node in _nodes(alive=True)]
        cores = [int(resource.get("CPU", 0)) for resource in resources]
        cards = [int(resource.get("GPU", 0)) for resource in resources]
        cpus = config.cpus_per_run
        gpus = config.gpus_per_run
        if gpus is None:
            gpus = min(1, sum(cards))
        fitting = [place for place, number in enumerate(cards) if gpus == 0 or runs_on(number, gpus) > 0]
        if not fitting:
            raise BadSetting(
                f"{named('gpus_per_run')} {gpus:g}: no node of the cluster has as many",
                f"give at most {max(cards)}",
                setting="gpus_per_run",
            )
        most_cpus = max(cores[place] for place in fitting)
        if cpus > most_cpus:
            raise BadSetting(
                f"{named('cpus_per_run')} {cpus}: no node of the cluster has as many for a run",
                f"give at most {most_cpus}",
                setting="cpus_per_run",
            )
        self.task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=-1)(_make)
        self.variables = {"OMP_NUM_THREADS": str(cpus)}
        if gpus == 0:
            self.variables["CUDA_VISIBLE_DEVICES"] = ""

    def execute(self, runs: Sequence[PlannedRun], root: str, out: Path, say: Show) -> dict[str, str]:
        _check_shared(root, out)
        this_node = OnNode(ray.get_runtime_context().get_node_id(), soft=False)
        self.begun = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": this_node})
        with open(out / MESSAGES, "a", encoding="utf-8") as messages, redirect_stdout(messages):
            return super().execute(runs, root, out, say)

    def start(self, title: str, run: PlannedRun) -> Any:
        return self.task.remote(title, run, str(Path.cwd()), self.out, self.variables, self.begun)

    def ended(self, running: Mapping[str, Any]) -> dict[str, str | None]:
        ended, _ = ray.wait(list(running.values()), timeout=POLL)
        names = {node["NodeID"]: _node_name(node) for node in _nodes()}
        for title, node in self.begun.get_nowait_batch(self.begun.qsize()):
            self.say(f"{title} on {names[node]}")
        return {name: _failure(task) for name, task in running.items() if task in ended}

    def end(self, running: Sequence[Any]) -> None:
        """Cancel the tasks; Ray's cancellation of a task that runs may be lost, so that it is repeated."""
        waiting = list(running)
        give_up = time.monotonic() + END_WITHIN
        while waiting and time.monotonic() < give_up:
            for task in waiting:
                ray.cancel(task)
            _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=CANCEL_EVERY)


def _failure(task: Any) -> str | None:
    try:
        reason: str | None = ray.get(task)
        return reason
    except RayError as error:
        return _last_line(error)


def _make(title: str, run: PlannedRun, folder: str, out: Path, variables: Environment, begun: Queue) -> str | None:
    """On a node: make one run in a process of its own; ``begun`` gets its title and the node."""
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # by which Ray cancels; ignored if begun in the background
    begun.put((title, ray.get_runtime_context().get_node_id()))
    try:
        command = Command(run, out, variables)
    except BAD_INPUT as error:
        return in_words(error)
    _await_end(command)
    return command.failure


def _await_end(command: Command) -> None:
    """Wait for the command's end; cancellations by Ray are one SIGTERM for it."""
    cancelled = False
    terminated = False
    while command.process.poll() is None:
        try:
            if cancelled and not terminated:
                command.process.terminate()
                terminated = True  # after it: a cancellation in between repeats the signal rather than losing it
            time.sleep(POLL)
        except KeyboardInterrupt:
            cancelled = True
    if cancelled:
        raise KeyboardInterrupt


def _nodes(alive: bool = False) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in listed if node["Alive"] or not alive]


def _node_name(node: Mapping[str, Any]) -> str:
    if node["NodeName"] == node["NodeManagerAddress"]:  # it has no name
        return str(node["NodeManagerHostname"])
    return str(node["NodeName"])


def _check_shared(root: str, out: Path) -> None:
    """Raise an error for a node that does not answer, has another version, or does not share the folders."""
    probe = out / f".shared-{uuid.uuid4().hex}"
    probe.write_text(probe.name, encoding="utf-8")
    task = ray.remote(num_cpus=0, max_retries=0)(_unfit)
    try:
        answers = []
        for node in _nodes(alive=True):
            on_node = task.options(scheduling_strategy=OnNode(node["NodeID"], soft=False))
            answers.append((node, on_node.remote(__version__, str(Path.cwd()), root, probe)))
        for node, answer in answers:
            reason = _answer(node, answer)
            if reason is not None:
                raise UserError(f"node {_node_name(node)} {reason}")
    finally:
        probe.unlink()


def _answer(node: Mapping[str, Any], answer: Any) -> str | None:
    try:
        reason: str | None = ray.get(answer, timeout=ANSWER_WITHIN)
        return reason
    except GetTimeoutError:
        raise UserError(
            f"node {_node_name(node)} does not answer in {ANSWER_WITHIN:g} s", "repair it or remove it from the cluster"
        ) from None
    except RayError as error:
        if node["NodeID"] not in [live["NodeID"] for live in _nodes(alive=True)]:
            return None  # Ray lists a lost node for many seconds
        raise UserError(f"node {_node_name(node)}: {_last_line(error)}", SAME) from error


def _unfit(version: str, folder: str, root: str, probe: Path) -> str | None:
    """On a node: why it cannot make the runs of a benchmark that this version of the package began in ``folder``."""
    if version != __version__:
        return f"has tllib-ancon {__version__}, this one {version}; {SAME}"
    advice = "every node needs the same one at this path"
    for shared in (folder, root):
        if not Path(shared).is_dir():
            return f"does not share the folder {shared}: {advice}"
        os.chdir(folder)
    if probe.is_file() and probe.read_text(encoding="utf-8") == probe.name:
        return None
    return f"does not share the folder {probe.parent}: {advice}"


def _last_line(error: Exception) -> str:
    return one_line(str(error).strip().splitlines()[-1])
