"""A run in memory or in a directory: which files it writes, in which order, and what it needs to resume."""

import contextlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

import torch

from tllib_ancon.runs import files
from tllib_ancon.runs.predictions import PREDICTIONS, SavedPredictions, write_predictions
from tllib_ancon.runs.record import SCHEMA, differences, refuse_other_settings, versions
from tllib_ancon.runs.state import copy_to_cpu, other_version, read_state, start_again, write_state, write_weights
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.errors import CONTINUES, BadFile, BadSetting, UserError, named, reading
from tllib_ancon.runtime.processes import on_main
from tllib_ancon.runtime.types import Metrics, Record, State

CONFIG, METRICS, RESULT = "config.json", "metrics.jsonl", "result.json"
CHECKPOINTS = "checkpoints"
LATEST, BEST, SOURCE, STATE = "latest.pth", "best.pth", "source.pth", f"{CHECKPOINTS}/state.pth"
CERTIFICATE, CERTIFIED = "certificate.json", "certified.pth"
OF_A_RUN = (RESULT, CERTIFICATE, f"{CHECKPOINTS}/{CERTIFIED}", METRICS, PREDICTIONS)
OF_ITS_MODELS = (f"{CHECKPOINTS}/{LATEST}", f"{CHECKPOINTS}/{BEST}", f"{CHECKPOINTS}/{SOURCE}")
"""Files of a run beside its settings and its state."""


class MemoryRun:
    """A run that stores nothing but the best model, in memory."""

    finished = False
    """Whether the run was finished before this call."""

    def __init__(self) -> None:
        self._best: State = {}

    def __str__(self) -> str:
        return "memory"

    @property
    def after_a_stop(self) -> str:
        """What to do after a signal."""
        return f"the run was in memory alone, and begins again; with {named('log')} the same call would continue it"

    def recorded_settings(self) -> Record:
        """The settings of the run that continues; empty for a new one."""
        return {}

    def refuse_own_checkpoint(self, checkpoint: str) -> None:
        """Raise an error for a source model that this run would overwrite."""

    def refuse_images(self, root: str, paths: Iterable[str]) -> None:
        """Raise an error for images in this folder, which a later call takes for a part of the run."""

    def begin(self, config: Record, overwrite: bool = False) -> list[str]:
        """Start or resume the run of these settings. Returns warnings."""
        return []

    def metrics(self) -> list[Metrics]:
        """The metrics of all complete epochs."""
        return []

    def resume(self) -> tuple[State, list[Metrics]] | None:
        """Snapshot and metrics of the last complete epoch; None for a new run."""
        return None

    def save_epoch(self, snapshot: State, metrics: Sequence[Metrics], selected: bool) -> None:
        """Store an epoch, whose model is the best one if it is ``selected``."""
        if selected:
            self._best = copy_to_cpu(snapshot["parts"]["model"])

    def save_source(self, weights: State) -> None:
        """Store the weights of the source model."""

    def save_predictions(self, predictions: SavedPredictions) -> None:
        """Store predictions of the best model on the target."""

    def best(self) -> State:
        """The weights of the best epoch."""
        return self._best

    def last_good(self, epoch: int) -> str:
        """Where the model of this epoch lies, for an error message; empty if it is not stored."""
        return ""

    def finish(self, result: Record) -> None:
        """Store the result; the run is finished."""

    def close(self) -> None:
        """End writing, whatever happened."""


class RunDirectory(MemoryRun):
    """A run in a folder; the same settings resume it after a cut.

    A trainer calls :meth:`begin`, :meth:`resume`, :meth:`save_epoch` after each epoch, :meth:`finish` at the end and
    :meth:`close` whatever happened.

    One file, ``checkpoints/state.pth``, holds all that a resume needs, with the state of every process. Each file is
    written beside its place and renamed; the best model and its predictions come before the state, ``latest.pth`` and
    ``metrics.jsonl`` after it, which :meth:`resume` writes again. So a kill at any moment leaves the last complete
    epoch. ``result.json`` is written last and marks a finished run. Of many processes the main one reads and writes;
    the others get what it read, or its error.
    """

    def __init__(self, path: str | Path):
        super().__init__()
        self.path = Path(path)
        self.checkpoints = self.path / CHECKPOINTS
        self._lock: TextIO | None = None

    def __str__(self) -> str:
        return str(self.path)

    @property
    def after_a_stop(self) -> str:
        return CONTINUES

    @property
    @on_main
    def finished(self) -> bool:  # type: ignore[override]
        return self._has(RESULT)

    def config(self) -> Record:
        """The recorded settings, for another stage that reads this run."""
        if not self._has(CONFIG):
            raise BadFile(f"{self.path} is not a run directory: it has no {CONFIG}", "give another folder")
        advice = f"restore it from a copy, or remove it and pass the settings of the model, such as {named('arch')}"
        recorded = files.read_json(self.path / CONFIG, advice=advice)
        if recorded.get("schema") != SCHEMA:
            raise BadFile(
                f"{self.path / CONFIG} is no record of a run of this version: its schema is "
                f"{recorded.get('schema', 'missing')}, here {SCHEMA}",
                f"use the version that wrote it, or choose another {named('log')}",
            )
        return recorded

    def recorded_settings(self) -> Record:
        if not self._has(CONFIG):
            return {}
        return self.config()

    @on_main
    def metrics(self) -> list[Metrics]:
        path = self.path / METRICS
        if not path.is_file():
            return []
        return [files.read_json(path, line, start_again()) for line in path.read_bytes().splitlines()]

    @on_main
    def result(self) -> Record:
        return files.read_json(self.path / RESULT, advice=start_again())

    def refuse_own_checkpoint(self, checkpoint: str) -> None:
        if os.path.realpath(self.checkpoints) == os.path.realpath(Path(checkpoint).parent):
            raise BadFile(
                f"checkpoint {checkpoint} lies where this run writes its own", f"choose another {named('log')}"
            )

    def refuse_images(self, root: str, paths: Iterable[str]) -> None:
        folders = {os.path.dirname(path) for path in paths}
        if root and _lies_in(self.path, root):
            inside = [folder for folder in folders if _lies_in(folder, self.path)]
        else:
            inside = [folder for folder in folders if os.path.realpath(folder) == os.path.realpath(self.path)]
        if inside:
            raise BadSetting(
                f"{named('log', self.path)} holds images (in {sorted(inside)[0]}), and a run directory is no part of a "
                "dataset",
                f"choose another {named('log')}, such as a new folder",
                setting="log",
            )

    def claim(self) -> None:
        self._lock = self._lock or files.lock_folder(self.path)

    @on_main
    def begin(self, config: Record, overwrite: bool = False) -> list[str]:
        """Claim the directory for a run with these settings: a new, an interrupted or a finished one. Returns warnings.

        Other settings are an error once an epoch is complete. ``overwrite`` starts anew, but resumes a run that the
        same settings began with ``overwrite``."""
        computing = {"threads": torch.get_num_threads()}
        if processes.world_size() > 1:
            computing["processes"] = processes.world_size()
        requested = json.loads(json.dumps({"schema": SCHEMA, **config, **computing}))
        starts_anew = overwrite and not self._overwrites_already(requested)
        if self._has(RESULT) and not starts_anew:
            refuse_other_settings(self.path, self.config(), requested)
            with contextlib.suppress(OSError):  # of a copy that may only be read
                self.discard_state()
            return []
        self._claim_folders()
        if starts_anew:
            self.clear()
        if not self._has(STATE):
            self._refuse_other_files()
            self.write_json(CONFIG, {**requested, "versions": versions()})
            return []
        recorded = self.config()
        refuse_other_settings(self.path, recorded, requested)
        return _warnings_about_threads(recorded, requested)

    def _claim_folders(self) -> None:
        """Make the folders of the run, keep other processes out, and remove files that were not completely written."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.claim()
        self.checkpoints.mkdir(exist_ok=True)
        (self.path / "visualize").mkdir(exist_ok=True)
        for unfinished in (*self.path.glob("*" + files.PARTIAL), *self.path.glob("*/*" + files.PARTIAL)):
            unfinished.unlink()

    def _refuse_other_files(self) -> None:
        """Raise an error for files that a new run would replace and that are no part of an interrupted one."""
        if self._has(METRICS):
            raise BadFile(
                f"run directory {self.path} holds {METRICS} but no {STATE}: it is a partial copy of a run, or no run "
                "of this program",
                f"copy all of it, choose another {named('log')}, or {start_again()}",
            )
        self.recorded_settings()  # an error for the settings of another program

    @on_main
    def resume(self) -> tuple[State, list[Metrics]] | None:
        """Snapshot and metrics of the last epoch that :meth:`save_epoch` stored, or None."""
        if not self._has(STATE):
            return None
        with reading(self.path / STATE, "the state of a run", other_version()):
            state = read_state(self.path / STATE)
            snapshot, metrics = state["snapshot"], state["metrics"]
        self._write_what_follows(snapshot, metrics)
        return snapshot, metrics

    @on_main
    def save_epoch(self, snapshot: State, metrics: Sequence[Metrics], selected: bool) -> None:
        if selected:
            write_weights(self.checkpoints / BEST, snapshot["parts"]["model"])
        write_state(self.path / STATE, {"snapshot": snapshot, "metrics": [*metrics]})
        self._write_what_follows(snapshot, metrics)

    def _write_what_follows(self, snapshot: State, metrics: Sequence[Metrics]) -> None:
        """Write the files that the state determines."""
        write_weights(self.checkpoints / LATEST, snapshot["parts"]["model"])
        lines = [json.dumps(epoch) + "\n" for epoch in metrics]
        files.write_bytes(self.path / METRICS, "".join(lines).encode())

    @on_main
    def save_source(self, weights: State) -> None:
        write_weights(self.checkpoints / SOURCE, weights)

    @on_main
    def save_predictions(self, predictions: SavedPredictions) -> None:
        write_predictions(self.path, predictions)

    def best(self) -> State:
        return self.load(BEST)

    def last_good(self, epoch: int) -> str:
        return f"{self.checkpoints / LATEST} holds the last good model, of epoch {epoch}. "

    @on_main
    def load(self, name: str) -> State:
        path = self.checkpoints / name
        with reading(
            path, "a model of this run", f"is this a partial copy of a run? Copy all of it, or {start_again()}"
        ):
            return read_state(path)

    @on_main
    def finish(self, result: Record) -> None:
        self.write_json(RESULT, result)
        self.discard_state()
        self.close()

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def clear(self) -> None:
        """Remove the files of an earlier run and no others; the state last, so that no other file can outlive it."""
        if not self.path.is_dir():
            return
        self.claim()
        for name in (*OF_A_RUN, *OF_ITS_MODELS, CONFIG):
            (self.path / name).unlink(missing_ok=True)
        self.discard_state()

    def write_json(self, name: str, content: Record) -> None:
        files.write_json(self.path / name, content)

    def discard_state(self) -> None:
        (self.path / STATE).unlink(missing_ok=True)

    def _has(self, name: str) -> bool:
        return (self.path / name).is_file()

    def _overwrites_already(self, requested: Record) -> bool:
        """Whether a run with these settings overwrote another one here, and was interrupted before all was finished."""
        if not self._has(STATE) or self._has(RESULT):
            return False
        with contextlib.suppress(UserError), reading(self.path, "a run"):
            recorded = self.config()
            read_state(self.path / STATE)
            same = recorded["versions"] == versions() and not differences(recorded, requested)
            return bool(recorded["overwrite"]) and same
        return False


def _lies_in(path: str | Path, folder: str | Path) -> bool:
    """Whether a path is this folder or lies below it, all links followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _warnings_about_threads(recorded: Record, requested: Record) -> list[str]:
    threads = requested["threads"]
    recorded_threads = recorded.get("threads", threads)
    if recorded_threads == threads:
        return []
    return [
        f"warning: this run began with {recorded_threads} threads of PyTorch and continues with {threads}: its numbers "
        "will differ from those of an uninterrupted run, soon by more than the last bits"
    ]
