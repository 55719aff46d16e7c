"""A run directory: which files it holds, in which order they are written, and what it needs to resume."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

import torch

from tllib_ancon._version import __version__
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.settings import flag_of, settings_of
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.runs import files
from tllib_ancon.runs.state import on_cpu, other_version, start_again
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.errors import BadFile, BadSetting, named, one_line, reading
from tllib_ancon.runtime.processes import on_main
from tllib_ancon.runtime.text import first_few
from tllib_ancon.runtime.types import Metrics, Record, State

CONFIG, METRICS, RESULT = "config.json", "metrics.jsonl", "result.json"
PREDICTIONS, CERTIFICATE = "predictions.npz", "certificate.json"
CHECKPOINTS = "checkpoints"
LATEST, BEST, SOURCE, CERTIFIED = "latest.pth", "best.pth", "source.pth", "certified.pth"
STATE = f"{CHECKPOINTS}/state.pth"
_MODELS = [f"{CHECKPOINTS}/{name}" for name in (LATEST, BEST, SOURCE, CERTIFIED)]
OF_A_RUN = (RESULT, CERTIFICATE, METRICS, PREDICTIONS, CONFIG, *_MODELS, STATE)
"""Files of a run, in the order in which they are removed: without the state the others are no run."""

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


class RunDirectory:
    """A run in a folder; the same settings resume it after a cut.

    A training calls :meth:`begin`, :meth:`resume`, :meth:`save_epoch` after each epoch, :meth:`finish` at the end and
    :meth:`close` whatever happened.

    One file, ``checkpoints/state.pth``, holds all that a resume needs, with the state of every process. Each file is
    written beside its place and renamed. The best model and its predictions come before the state. ``latest.pth`` and
    ``metrics.jsonl`` come after it, and :meth:`resume` writes them again. So a kill at any moment leaves the last
    complete epoch. ``result.json`` is written last and marks a finished run. Of many processes the main one reads and
    writes; the others get what it read, or its error.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.checkpoints = self.path / CHECKPOINTS
        for file in (*self.path.glob("*"), *self.checkpoints.glob("*")):
            if file.is_symlink():
                raise BadFile(f"{file} is a link, and nothing in a run directory is one", "put what it leads to there")
        self._lock: TextIO | None = None

    @property
    @on_main
    def finished(self) -> bool:
        return self._has(RESULT)

    def config(self) -> Record:
        """The recorded settings."""
        path = self.path / CONFIG
        recorded: Record = {}
        if path.is_file():
            advice = f"restore it from a copy, or remove it and pass the settings of the model, such as {named('arch')}"
            recorded = files.read_json(path, advice=advice)
        if recorded.get("schema") != SCHEMA:
            raise BadFile(
                f"{self.path} is no run directory of this version of tllib_ancon: the schema in its {CONFIG} is "
                f"{recorded.get('schema')}, here {SCHEMA}",
                f"choose another folder, as {named('log')} a new one, or use the version that wrote it",
            )
        return recorded

    @on_main
    def metrics(self) -> list[Metrics]:
        """The metrics of all complete epochs."""
        path = self.path / METRICS
        with reading(path, "JSON", start_again()):
            return [dict(json.loads(line)) for line in path.read_bytes().splitlines()]

    @on_main
    def result(self) -> Record:
        return files.read_json(self.path / RESULT, advice=start_again())

    @on_main
    def best(self) -> State:
        """The weights of the best epoch."""
        path = self.checkpoints / BEST
        with reading(
            path, "a model of this run", f"is this a partial copy of a run? Copy all of it, or {start_again()}"
        ):
            return _read_state(path)

    @on_main
    def begin(self, config: Record, overwrite: bool = False) -> None:
        """Claim the directory for a run with these settings: a new, an interrupted or a finished one.

        Other settings are an error once an epoch is complete. ``overwrite`` starts anew."""
        computing = {"threads": torch.get_num_threads(), "processes": processes.world_size()}
        requested = json.loads(json.dumps({"schema": SCHEMA, **config, **computing}))
        if self._has(RESULT) and not overwrite:
            _refuse_other_settings(self.path, self.config(), requested)
            return
        for folder in (self.checkpoints, self.path / "visualize"):
            folder.mkdir(parents=True, exist_ok=True)
        self._lock = self._lock or files.lock_folder(self.path)
        for unfinished in self.path.rglob("*" + files.PARTIAL):
            unfinished.unlink()
        if overwrite:
            for name in OF_A_RUN:
                (self.path / name).unlink(missing_ok=True)
        if self._has(CONFIG):
            recorded = self.config()
            if self._has(STATE):
                _refuse_other_settings(self.path, recorded, requested)
                return
        files.write_json(self.path / CONFIG, {**requested, "versions": _versions()})

    @on_main
    def resume(self) -> tuple[State, list[Metrics]]:
        """Snapshot and metrics of the last complete epoch; both are empty for a new run."""
        if not self._has(STATE):
            return {}, []
        with reading(self.path / STATE, "the state of a run", other_version()):
            state = _read_state(self.path / STATE)
            snapshot, metrics = state["snapshot"], state["metrics"]
        self._write_what_follows(snapshot, metrics)
        return snapshot, metrics

    @on_main
    def save_epoch(self, snapshot: State, metrics: Sequence[Metrics], selected: bool) -> None:
        """Store an epoch, whose model is the best one if it is ``selected``."""
        if selected:
            self.write_weights(BEST, snapshot["parts"]["model"])
        _write_state(self.path / STATE, {"snapshot": snapshot, "metrics": [*metrics]})
        self._write_what_follows(snapshot, metrics)

    def _write_what_follows(self, snapshot: State, metrics: Sequence[Metrics]) -> None:
        """Write the files that the state determines."""
        self.write_weights(LATEST, snapshot["parts"]["model"])
        lines = [json.dumps(epoch) + "\n" for epoch in metrics]
        files.write_bytes(self.path / METRICS, "".join(lines).encode())

    def write_weights(self, name: str, weights: State) -> None:
        _write_state(self.checkpoints / name, on_cpu(weights))

    @on_main
    def save_predictions(self, arrays: Mapping[str, Any]) -> None:
        """Store predictions of the best model on the target."""
        files.write_arrays(self.path / PREDICTIONS, arrays)

    @on_main
    def finish(self, result: Record) -> None:
        """Store the result; the run is finished."""
        files.write_json(self.path / RESULT, result)
        (self.path / STATE).unlink(missing_ok=True)

    def close(self) -> None:
        """Let other processes in."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _has(self, name: str) -> bool:
        return (self.path / name).is_file()


def recorded_settings(log: str | None, overwrite: bool) -> Record:
    """The settings of the run that continues in this folder; empty for a new one."""
    if log is None or overwrite or not Path(log, CONFIG).is_file():
        return {}
    return RunDirectory(log).config()


def refuse_own_checkpoint(log: str | None, checkpoint: str) -> None:
    """Raise an error for a source model that the run in this folder would overwrite."""
    if log is not None and os.path.realpath(Path(log, CHECKPOINTS)) == os.path.realpath(Path(checkpoint).parent):
        raise BadFile(f"checkpoint {checkpoint} lies where this run writes its own", f"choose another {named('log')}")


def refuse_images(log: str | None, images: ImageSource) -> None:
    """Raise an error for images in the folder of a run, which a later call takes for a part of the run."""
    if log is None:
        return
    run = Path(os.path.realpath(log))  # of links in a circle, too
    folders = {Path(path).parent.resolve() for path in images.paths or ()}
    root = images.reader.root
    lies_in_root = bool(root) and run.is_relative_to(Path(root).resolve())
    if run in folders or (lies_in_root and any(folder.is_relative_to(run) for folder in folders)):
        raise BadSetting(
            f"{named('log', log)} holds images, and a run directory is no part of a dataset",
            f"choose another {named('log')}, such as a new folder",
            setting="log",
        )


def _refuse_other_settings(path: Path, recorded: Record, requested: Record) -> None:
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


def _versions() -> dict[str, str]:
    return {
        "tllib_ancon": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": metadata.version("torchvision"),
        "timm": metadata.version("timm"),
        "pillow": metadata.version("pillow"),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine(),
    }


def _write_state(path: Path, state: State) -> None:
    files.write_whole(path, lambda file: torch.save(state, file))


def _read_state(path: Path) -> State:
    state: State = torch.load(path, map_location="cpu", weights_only=True)
    return state
