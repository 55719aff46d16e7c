"""The settings that a run directory has on record, and whether another run may continue under them."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from tllib_ancon._version import __version__
from tllib_ancon.config import AdaptConfig
from tllib_ancon.errors import UserError
from tllib_ancon.settings import settings_of, spec

NOT_SETTINGS = ("versions", *(name for name, field in settings_of(AdaptConfig).items() if not spec(field).decides))
"""Entries of a configuration that do not decide what a run computes."""

ANEW = "pass `overwrite=True` to start the run anew"
MOST_DIFFERENCES = 8


def versions() -> dict[str, str]:
    """Of what decides the numbers of a run."""
    import timm
    import torchvision

    return {
        "tllib_ancon": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "timm": timm.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine(),
    }


def refuse_other_settings(path: Path, recorded: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse to continue the run of a directory with settings that decide other numbers.

    Raises:
        UserError: settings differ (which, and both values)
    """
    differing = differences(recorded, wanted)
    if differing:
        shown = list(differing)[:MOST_DIFFERENCES]
        listed = "; ".join(f"{name}: {differing[name][0]!r} there, {differing[name][1]!r} now" for name in shown)
        more = f"; and {len(differing) - MOST_DIFFERENCES} more" if len(differing) > MOST_DIFFERENCES else ""
        raise UserError(
            f"run directory {path} holds a run with other settings ({listed}{more}); choose another `log`, or {ANEW}"
        )


def other_threads(there: Any, now: int) -> list[str]:
    """A warning where the run began with another number of threads, else nothing."""
    if there in (None, now):
        return []
    return [
        f"warning: this run began with {there} threads of PyTorch and goes on with {now}: its numbers will differ from "
        "those of an uninterrupted run, soon by more than the last bits"
    ]


def differences(recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Setting -> its two values, where they differ."""
    there, now = _settings(recorded), _settings(wanted)
    names = {**there, **now}
    return {name: (there.get(name), now.get(name)) for name in names if there.get(name) != now.get(name)}


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the run, every value by itself: ``{"lr": 0.01, "inputs.classes[3]": "bike"}``."""
    return dict(leaf for name, value in config.items() if name not in NOT_SETTINGS for leaf in _leaves(name, value))


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _leaves(f"{name}.{key}", entry)
    elif isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _leaves(f"{name}[{number}]", entry)
    else:
        yield name, value
