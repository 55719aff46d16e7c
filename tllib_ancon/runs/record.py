"""``config.json`` of a run: which entries decide what it computes, and how the settings of a call differ from them."""

import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from tllib_ancon._version import __version__
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.settings import flag_of, settings_of
from tllib_ancon.runs.state import start_again
from tllib_ancon.runtime.errors import BadSetting, named
from tllib_ancon.runtime.text import first_few
from tllib_ancon.runtime.types import Record

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


def refuse_other_settings(path: Path, recorded: Record, requested: Record) -> None:
    """Raise an error for a call whose settings are not those of the run in this directory."""
    differing = differences(recorded, requested)
    if not differing:
        return
    if any(name.startswith("inputs.images.") for name in differing):
        counts = [_number_of_images(record) for record in (recorded, requested)]
        raise BadSetting(
            f"choose another {named('log')} for these images: the run in {path} has others ({counts[0]:,} there, "
            f"{counts[1]:,} now)",
            f"or {start_again()}",
            setting="log",
        )
    texts = [f"{name}: {before!r} there, {value!r} now" for name, (before, value) in differing.items()]
    action = f"choose another {named('log')}, or {start_again()}"
    if "epochs" in differing:
        action += "; a run cannot be made longer: the learning rate of each step depends on how many there will be"
    raise BadSetting(
        f"run directory {path} holds a run with other settings ({first_few(texts, MOST_DIFFERENCES, '; ')})",
        action,
        setting="log",
    )


def _number_of_images(record: Record) -> int:
    images: dict[str, Record] = record.get("inputs", {}).get("images", {})
    return sum(domain["number"] for domain in images.values())


def differences(recorded: Record, requested: Record) -> dict[str, tuple[Any, Any]]:
    """Setting -> its two values, where they differ; every value by itself, such as ``inputs.classes[3]``."""
    recorded_values = _values_of(recorded)
    requested_values = _values_of(requested)
    differing = {}
    for name in {**recorded_values, **requested_values}:
        pair = (recorded_values.get(name), requested_values.get(name))
        if pair[0] != pair[1]:
            differing[name] = pair
    return differing


def _values_of(config: Record) -> Record:
    """Every value that decides what a run computes, by its place."""
    values: Record = {}
    for name, value in config.items():
        if name not in NOT_SETTINGS:
            values.update(_leaves(name, value))
    return values


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _leaves(f"{name}.{key}", part)
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _leaves(f"{name}[{number}]", part)
    else:
        yield name, value
