"""A run's folder: TLLib's layout plus configuration, metrics and result, each file written whole."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tllib_ancon._version import __version__
from tllib_ancon.errors import UserError

CONFIG, METRICS, RESULT = "config.json", "metrics.jsonl", "result.json"
LATEST, BEST, STATE = "latest.pth", "best.pth", "state.pth"
CHECKPOINTS = (LATEST, BEST, STATE)
NOT_SETTINGS = ("log", "overwrite", "quiet", "verbose", "workers", "print_freq", "versions")
"""Entries of a configuration that do not decide what a run computes."""


class RunDirectory:
    """Reads and writes one run directory.

    Layout: ``config.json`` (every resolved argument, versions), ``metrics.jsonl`` (a line an epoch; epoch 0 is the
    start model), ``result.json`` (written last: its presence means that the run is finished), ``checkpoints/`` and
    ``visualize/``.

    Args:
        path: the folder; created when something is first written
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def visualize(self) -> Path:
        return self.path / "visualize"

    @property
    def finished(self) -> bool:
        return (self.path / RESULT).is_file()

    def begin(self, config: Mapping[str, Any], overwrite: bool = False) -> None:
        """Claim the directory for a run with these settings: a new one, or the one that was cut off here.

        Raises:
            UserError: the directory belongs to a run with other settings (which), or cannot be written
        """
        recorded = self._recorded_config()
        wanted = json.loads(json.dumps(dict(config)))
        if recorded is not None and not overwrite:
            _refuse_other_settings(self.path, recorded, wanted)
            return
        try:
            for folder in (self.checkpoints, self.visualize):
                folder.mkdir(parents=True, exist_ok=True)
            if recorded is not None:
                self._clear()
            self.write_json(CONFIG, {**wanted, "versions": versions()})
        except OSError as error:
            raise UserError(f"run directory {self.path} cannot be written ({error})") from error

    def config(self) -> dict[str, Any]:
        """The recorded configuration.

        Raises:
            UserError: this is not a run directory
        """
        recorded = self._recorded_config()
        if recorded is None:
            raise UserError(f"{self.path} is not a run directory: it has no {CONFIG}")
        return recorded

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of ``metrics.jsonl``, oldest first; an empty list before the first."""
        path = self.path / METRICS
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    def write_metrics(self, lines: list[dict[str, Any]]) -> None:
        self._write(METRICS, "".join(json.dumps(line) + "\n" for line in lines).encode())

    def result(self) -> dict[str, Any]:
        return json.loads((self.path / RESULT).read_text())

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        self._write(name, (json.dumps(content, indent=2) + "\n").encode())

    def save(self, name: str, state: Mapping[str, Any]) -> Path:
        """Write ``checkpoints/name`` whole: to a temporary file that then takes the name."""
        path = self.checkpoints / name
        temporary = path.with_name(path.name + ".partial")
        try:
            with open(temporary, "wb") as file:
                torch.save(dict(state), file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except (OSError, RuntimeError) as error:
            temporary.unlink(missing_ok=True)
            raise UserError(f"checkpoint {path} could not be written ({error}); the previous one is kept") from error
        return path

    def remove(self, name: str) -> None:
        (self.checkpoints / name).unlink(missing_ok=True)

    def load_state(self) -> dict[str, Any] | None:
        """The state of a run that was cut off, or None.

        Raises:
            UserError: the file is damaged
        """
        path = self.checkpoints / STATE
        if not path.is_file():
            return None
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch.load raises many types on a damaged file
            raise UserError(f"{path} cannot be read ({error}); pass --overwrite to start the run anew") from error

    def _write(self, name: str, content: bytes) -> None:
        path = self.path / name
        temporary = path.with_name(path.name + ".partial")
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)

    def _clear(self) -> None:
        """Remove what an earlier run of ours left here, and nothing else."""
        for name in (RESULT, METRICS, *(f"checkpoints/{checkpoint}" for checkpoint in CHECKPOINTS)):
            (self.path / name).unlink(missing_ok=True)

    def _recorded_config(self) -> dict[str, Any] | None:
        path = self.path / CONFIG
        if not path.is_file():
            return None
        try:
            return json.loads(path.read_text())
        except ValueError as error:
            raise UserError(f"{path} is not valid JSON ({error}); pass --overwrite to start the run anew") from error


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


def _refuse_other_settings(path: Path, recorded: dict[str, Any], wanted: dict[str, Any]) -> None:
    names = sorted((set(recorded) | set(wanted)) - set(NOT_SETTINGS))
    differing = [name for name in names if recorded.get(name) != wanted.get(name)]
    if differing:
        listed = "; ".join(f"{name}: {recorded.get(name)!r} there, {wanted.get(name)!r} now" for name in differing)
        raise UserError(
            f"run directory {path} holds a run with other settings ({listed}); choose another --log, or pass "
            "--overwrite to start anew"
        )
