"""``config.json`` of a run: how it is read, and how the settings of a call differ from it."""

import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from tllib_ancon._version import __version__
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.settings import flag_of, settings_of
from tllib_ancon.runs.files import read_json
from tllib_ancon.runs.state import start_again
from tllib_ancon.runtime.errors import BadFile, BadSetting, named
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.text import first_few
from tllib_ancon.runtime.types import Record

CONFIG = "config.json"

SCHEMA = 1
"""Number of the form of a run directory. A run of another one cannot be read."""

MOST_DIFFERENCES = 8
NOT_SETTINGS = (
    "versions",
    "network",
    *(name for name, field in settings_of(AdaptConfig).items() if not flag_of(field).decides),
)
"""Entries of a configuration that do not decide what a run computes."""


def versions() -> dict[str, str]:
    return {
        "tllib_ancon": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": metadata.version("torchvision"),
        "timm": metadata.version("timm"),
        "pillow": metadata.version("pillow"),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine(),
    }


def read_record(run: Path) -> Record:
    """The recorded settings of a run directory."""
    path = run / CONFIG
    recorded: Record = {}
    if path.is_file():
        advice = f"restore it from a copy, or remove it and pass the settings of the model, such as {named('arch')}"
        recorded = read_json(path, advice=advice)
    schema = recorded.get("schema")
    if schema == SCHEMA:
        return recorded
    problem = f"{path} is of another version of tllib_ancon: its schema is {schema}, here {SCHEMA}"
    action = f"use the version that wrote it, or choose another {named('log')}"
    if schema is None:
        problem = f"{run} is no run directory of tllib_ancon: it has no {CONFIG} with a schema"
        action = f"choose another folder, as {named('log')} a new one"
    raise BadFile(problem, action)


def recorded_settings(log: str | None, overwrite: bool) -> Record:
    """The settings of the run that continues in this folder; empty for a new one."""
    if log is None or overwrite or not Path(log, CONFIG).is_file():
        return {}
    return read_record(Path(log))


def refuse_other_settings(path: Path, recorded: Record, requested: Record) -> None:
    """Raise an error for a call whose settings are not those of the run in this directory."""
    differing = differences(recorded, requested)
    if not differing:
        return
    action = f"choose another {named('log')}, or {start_again()}"
    texts = [f"{name}: {before!r} there, {value!r} now" for name, (before, value) in differing.items()]
    problem = f"run directory {path} holds a run with other settings ({first_few(texts, MOST_DIFFERENCES, '; ')})"
    if any(name.startswith("inputs.images.") for name in differing):
        recorded_number, number = (_number_of_images(record) for record in (recorded, requested))
        problem = f"the run in {path} has other images ({recorded_number:,} there, {number:,} now)"
    elif "epochs" in differing:
        action += "; a run cannot be made longer: the learning rate of each step depends on how many there will be"
    raise BadSetting(problem, action, setting="log")


def _number_of_images(record: Record) -> int:
    images: dict[str, Record] = record.get("inputs", {}).get("images", {})
    return sum(domain["number"] for domain in images.values())


def notes_on_threads(recorded: Record, requested: Record) -> list[Note]:
    if recorded["threads"] == requested["threads"]:
        return []
    text = (
        f"this run began with {recorded['threads']} threads of PyTorch and continues with {requested['threads']}: its "
        "numbers will differ from those of an uninterrupted run, soon by more than the last bits"
    )
    return [Note("other-threads", text, "threads", level="warning")]


def differences(recorded: Record, requested: Record) -> dict[str, tuple[Any, Any]]:
    """Setting -> its two values, where they differ; every value by itself, such as ``inputs.classes[3]``."""
    recorded_values = _leaves(_settings(recorded))
    requested_values = _leaves(_settings(requested))
    differing = {}
    for name in recorded_values | requested_values:
        pair = (recorded_values.get(name), requested_values.get(name))
        if pair[0] != pair[1]:
            differing[name] = pair
    return differing


def _settings(config: Record) -> Record:
    return {name: value for name, value in config.items() if name not in NOT_SETTINGS}


def _leaves(value: Any, place: str = "") -> Record:
    """Every value that is no mapping or list, by its place."""
    if isinstance(value, dict):
        parts = {f"{place}.{key}".removeprefix("."): part for key, part in value.items()}
    elif isinstance(value, list):
        parts = {f"{place}[{number}]": part for number, part in enumerate(value)}
    else:
        return {place: value}
    leaves: Record = {}
    for name, part in parts.items():
        leaves |= _leaves(part, name)
    return leaves
