"""Commands in processes that a test kills: a fork server loads this module, and with it everything slow, once."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import accelerate  # noqa: F401
import timm  # noqa: F401
import torch
import torchmetrics  # noqa: F401
import torchvision.transforms  # noqa: F401

from tllib_ancon.cli import adapt, pretrain  # noqa: F401
from tllib_ancon.cli.main import main
from tllib_ancon.training import files
from tllib_ancon.training.adaptation import Adaptation
from tllib_ancon.training.run_directory import STATE, RunDirectory

torch.set_num_threads(1)


def server() -> Any:
    """The context that starts processes in milliseconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def start(
    arguments: list[str],
    events_until_kill: int | None = None,
    errors: Path | None = None,
    writes_until_kill: int | None = None,
) -> BaseProcess:
    """Start ``tllib-ancon ARGUMENTS``; it kills itself when so many steps and file operations have begun.

    Args:
        errors: gets what it writes to standard error; it is in a group of processes of its own then
        writes_until_kill: file operations of the thread that writes epochs; the last waits for a step of the next epoch
    """
    process = server().Process(target=run, args=(arguments, events_until_kill, errors, writes_until_kill))
    process.start()
    return process


def run(
    arguments: list[str],
    events_until_kill: int | None = None,
    errors: Path | None = None,
    writes_until_kill: int | None = None,
) -> None:
    if errors is not None:
        os.setsid()
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    multiprocessing.set_start_method("fork", force=True)  # of data-loader workers
    RunDirectory.discard_state = lambda self: None  # what the last epoch kept is compared
    if events_until_kill is not None:
        _at_each_event(_killing_at(events_until_kill))
    if writes_until_kill is not None:
        _at_each_event(_in_writer(_killing_at(writes_until_kill, first=_wait_for_a_step())))
    sys.exit(main(arguments))


def _killing_at(number: int, first: Callable[[], object] = lambda: None) -> Callable[[], None]:
    """What does something and kills this process when it is called for the time of this number."""
    events = itertools.count(1)

    def event() -> None:
        if next(events) == number:
            first()
            os.kill(os.getpid(), signal.SIGKILL)

    return event


def _wait_for_a_step() -> Callable[[], None]:
    """What waits until a step begins; half a second at most, as none does while an epoch is scored."""
    stepped = threading.Event()
    Adaptation._step = _before(stepped.set, Adaptation._step)

    def wait() -> None:
        stepped.clear()
        stepped.wait(0.5)

    return wait


def _in_writer(event: Callable[[], None]) -> Callable[[], None]:
    return lambda: None if threading.current_thread() is threading.main_thread() else event()


def _at_each_event(event: Callable[[], None]) -> None:
    Adaptation._step = _before(event, Adaptation._step)
    files.HashingFile.write = _before(event, files.HashingFile.write)
    os.fsync = _before(event, os.fsync)
    os.replace = _before(event, os.replace)


def _before(event: Callable[[], None], function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        event()
        return function(*args)

    return call


def outcome(run: Path) -> dict[str, Any]:
    """All that a finished run holds except how fast it was."""
    paths = sorted((run / "checkpoints").iterdir())
    checkpoints = {path.name: torch.load(path, weights_only=True) for path in paths}
    state = checkpoints.pop(STATE)
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    result = json.loads((run / "result.json").read_text())
    del result["sha256"]
    return _without_speed({**checkpoints, "state": state["snapshot"], "metrics": metrics, "result": result})


def _without_speed(value: Any) -> Any:
    if not isinstance(value, dict | list):
        return value
    if isinstance(value, list):
        return [_without_speed(entry) for entry in value]
    return {name: _without_speed(entry) for name, entry in value.items() if name != "images_per_second"}


def differences(first: Any, second: Any, name: str = "run") -> list[str]:
    """Where two nested values differ by a bit."""
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        return [text for key in first for text in differences(first[key], second[key], f"{name}.{key}")]
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        pairs = enumerate(zip(first, second, strict=True))
        return [text for number, pair in pairs for text in differences(*pair, f"{name}[{number}]")]
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        same = first.dtype == second.dtype and first.shape == second.shape
        return [] if same and torch.equal(_bits(first), _bits(second)) else [name]
    return [] if type(first) is type(second) and first == second else [name]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """So that NaN equals NaN, and -0 differs from 0."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)
