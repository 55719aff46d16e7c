"""``config.json`` of a run: how it is read, and how the settings of a call differ from it."""

import platform
from importlib import metadata
from pathlib import Path

import torch

from tllib_ancon._version import __version__
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.settings import flag_of, settings_of
from tllib_ancon.runs.files import read_json
from tllib_ancon.runs.state import start_again
from tllib_ancon.runtime.errors import BadFile, BadSetting, named, one_line
from tllib_ancon.runtime.text import first_few
from tllib_ancon.runtime.types import Record

CONFIG = "config.json"

SCHEMA = 1
"""Number of the form of a run directory. A run of another one cannot be read."""

MOST_DIFFERENCES = 8
NOT_SETTINGS = (
    "versions",
    "network",
    "inputs",
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
    if recorded.get("schema") != SCHEMA:
        raise BadFile(
            f"{run} is no run directory of this version of tllib_ancon: the schema in its {CONFIG} is "
            f"{recorded.get('schema')}, here {SCHEMA}",
            f"choose another folder, as {named('log')} a new one, or use the version that wrote it",
        )
    return recorded


def recorded_settings(log: str | None, overwrite: bool) -> Record:
    """The settings of the run that continues in this folder; empty for a new one."""
    if log is None or overwrite or not Path(log, CONFIG).is_file():
        return {}
    return read_record(Path(log))


def refuse_other_settings(path: Path, recorded: Record, requested: Record) -> None:
    """Raise an error for a call whose settings or images are not those of the run in this directory."""
    recorded_values = _deciding(recorded)
    requested_values = _deciding(requested)
    differing = []
    for name in recorded_values | requested_values:
        before = recorded_values.get(name)
        after = requested_values.get(name)
        if before != after:
            differing.append(f"{name}: {one_line(before)} there, {one_line(after)} now")
    if differing:
        raise BadSetting(
            f"run directory {path} holds a run with other settings ({first_few(differing, MOST_DIFFERENCES, '; ')})",
            f"choose another {named('log')}, or {start_again()}",
            setting="log",
        )


def _deciding(config: Record) -> Record:
    """The entries that decide what a run computes, those of its inputs by themselves."""
    settings = {name: value for name, value in config.items() if name not in NOT_SETTINGS}
    inputs = {f"inputs.{name}": value for name, value in config.get("inputs", {}).items()}
    return settings | inputs
