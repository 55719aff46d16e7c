"""A run in memory or in a directory: which files it writes, in which order, and what it needs to resume."""

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TextIO

import torch
from torch import Tensor

from tllib_ancon.data.domain import Domain
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.errors import CONTINUES, BadFile, BadSetting, UserError, named, reading
from tllib_ancon.runtime.processes import is_main, on_main
from tllib_ancon.runtime.types import Metrics, Record, State
from tllib_ancon.training import files
from tllib_ancon.training.checkpointing import (
    PREDICTIONS,
    START_AGAIN,
    copy_to_cpu,
    read_sealed,
    write_predictions,
    write_sealed,
    write_weights,
)
from tllib_ancon.training.inference import Outputs
from tllib_ancon.training.run_record import differences, refuse_other_settings, versions

CONFIG, METRICS, RESULT = "config.json", "metrics.jsonl", "result.json"
CHECKPOINTS = "checkpoints"
LATEST, BEST, SOURCE, STATE = "latest.pth", "best.pth", "source.pth", f"{CHECKPOINTS}/state.pth"
CERTIFICATE, CERTIFIED = "certificate.json", "certified.pth"
OF_AN_EPOCH = (METRICS, f"{CHECKPOINTS}/{LATEST}", f"{CHECKPOINTS}/{BEST}", STATE)
OUTPUTS = (*OF_AN_EPOCH[:-1], f"{CHECKPOINTS}/{SOURCE}", PREDICTIONS)
"""The files whose checksums a finished run stores, where it has them."""

RESTORE = "restore it from a copy, or remove it and pass the settings of the model, such as `arch`"

_read = partial(files.read_json, advice=START_AGAIN)


class MemoryRun:
    """A run that stores nothing but the best model, in memory."""

    finished = False
    """Whether the run was finished before this call."""

    after_a_stop = "the run was in memory alone, and begins again; with `log` the same call would continue it"
    """What to do after a signal."""

    def __init__(self) -> None:
        self._best: State = {}

    def __str__(self) -> str:
        return "memory"

    def recorded_settings(self) -> Record:
        """The settings of the run that continues; empty for a new one."""
        return {}

    def refuse_own_checkpoint(self, checkpoint: str) -> None:
        """Raise an error for a source model that this run would overwrite."""

    def refuse_images(self, images: Domain) -> None:
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

    def save_epoch(self, snapshot: State, metrics: list[Metrics], selected: bool) -> None:
        """Store an epoch, whose model is the best one if it is ``selected``."""
        if selected:
            self._best = copy_to_cpu(snapshot["parts"]["model"])

    def save_source(self) -> None:
        """Store the model of the last epoch as the source model."""

    def save_predictions(self, predictions: Outputs, target: Domain, votes: Tensor | None) -> None:
        """Store predictions of the best model on the target, and the votes (N, K) of its images."""

    def best(self) -> State:
        """The weights of the best epoch."""
        return self._best

    def last_good(self, epoch: int) -> str:
        """Where the model of this epoch lies, for an error message; empty if it is not stored."""
        return ""

    def wait(self) -> None:
        """Wait until all is stored, and raise the error if that failed."""

    def finish(self, result: Record) -> None:
        """Store the result; the run is finished."""

    def close(self) -> None:
        """End writing, whatever happened."""


class RunDirectory(MemoryRun):
    """A run in a folder; the same settings resume it after a cut.

    A training loop calls :meth:`begin`, :meth:`resume`, :meth:`save_epoch` after each epoch, :meth:`finish` at the end
    and :meth:`close` whatever happened. What cannot be written is an error of the next call.

    ``result.json`` is written last and marks a finished run. A copy of an epoch is written while the next one is
    trained. It counts once ``checkpoints/state.pth`` is written, with the state of every process. The files that follow
    from it are written after it, and by :meth:`resume` again, so they agree after any kill. Of many processes the main
    one reads and writes; the others get what it read, or its error."""

    after_a_stop = CONTINUES

    def __init__(self, path: str | Path):
        super().__init__()
        self.path = Path(path)
        self.checkpoints = self.path / CHECKPOINTS
        self._lock: TextIO | None = None
        self._best_sha256: str | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self._written: Future[object] = Future()
        self._written.set_result(None)

    def __str__(self) -> str:
        return str(self.path)

    @property
    @on_main
    def finished(self) -> bool:  # type: ignore[override]
        return self._has(RESULT)

    def config(self) -> Record:
        """The recorded settings, for another stage that reads this run."""
        if not self._has(CONFIG):
            raise BadFile(f"{self.path} is not a run directory: it has no {CONFIG}. Give another folder")
        return files.read_json(self.path / CONFIG, advice=RESTORE)

    def recorded_settings(self) -> Record:
        if not self._has(CONFIG):
            return {}
        recorded = _read(self.path / CONFIG)
        if "versions" not in recorded:
            raise BadFile(
                f"{self.path / CONFIG} is no record of a run, and this run would replace it",
                f"choose another {named('log')}, such as a new folder",
            )
        return recorded

    @on_main
    def metrics(self) -> list[Metrics]:
        path = self.path / METRICS
        if not path.is_file():
            return []
        return [_read(path, line) for line in path.read_bytes().splitlines()]

    @on_main
    def result(self) -> Record:
        return _read(self.path / RESULT)

    def refuse_own_checkpoint(self, checkpoint: str) -> None:
        if os.path.realpath(self.checkpoints) == os.path.realpath(Path(checkpoint).parent):
            raise BadFile(
                f"checkpoint {checkpoint} lies where this run writes its own", f"choose another {named('log')}"
            )

    def refuse_images(self, images: Domain) -> None:
        root = getattr(images.images, "root", "")
        folders = {os.path.dirname(path) for path in images.paths or ()}
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

        Other settings are an error once an epoch is complete, and so are missing or changed files. ``overwrite`` starts
        anew, but resumes a run that the same settings began with ``overwrite``."""
        computing = {"threads": torch.get_num_threads()}
        if processes.world_size() > 1:
            computing["processes"] = processes.world_size()
        requested = json.loads(json.dumps({**config, **computing}))
        starts_anew = overwrite and not self._overwrites_already(requested)
        if self._has(RESULT) and not starts_anew:
            refuse_other_settings(self.path, self.config(), requested)
            self._verify(_read(self.path / RESULT).get("sha256", {RESULT: ""}))
            with contextlib.suppress(OSError):
                self.discard_state()
            return []
        self._claim_folders()
        recorded: Record = {}
        if starts_anew:
            self.clear()
        else:
            recorded = self.recorded_settings()
        if not self._has_an_epoch(STATE if recorded else CONFIG):
            self.write_json(CONFIG, {**requested, "versions": versions()})
            return []
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

    def _has_an_epoch(self, required: str) -> bool:
        """Whether files of an epoch are here; an error if the required one is not beside them."""
        present = [name for name in OF_AN_EPOCH if self._has(name)]
        if present and not self._has(required):
            raise BadFile(
                f"run directory {self.path} holds {', '.join(present)} but no {required}: it is a partial copy of a "
                f"run, or no run of this program. Copy all of it, choose another {named('log')}, or {START_AGAIN}"
            )
        return bool(present)

    @on_main
    def resume(self) -> tuple[State, list[Metrics]] | None:
        """Snapshot and metrics of the last epoch that :meth:`save_epoch` kept, or None."""
        if not self._has(STATE):
            return None
        with reading(self.path / STATE, "the state of a run", f"{START_AGAIN}"):
            state = self._read_state()
            self._best_sha256 = state["best"]
            self._write_files_of_epoch(state)
            return state["snapshot"], state["metrics"]

    @on_main
    def save_epoch(self, snapshot: State, metrics: list[Metrics], selected: bool) -> None:
        """Store an epoch; returns once the epoch before is written and this one is copied."""
        self._written.result()
        state = {"snapshot": snapshot, "metrics": metrics, "selected": selected, "best": self._best_sha256}
        copied: State = copy_to_cpu(state)

        def write() -> None:
            write_sealed(self.path / STATE, copied)
            self._write_files_of_epoch(copied)

        self.then(write)

    def then(self, write: Callable[[], object]) -> None:
        """Write something in the main process, after everything before it; after an error nothing more."""
        if is_main():
            before = self._written
            self._written = self._writer.submit(lambda: (before.result(), write()))

    def save_source(self) -> None:
        self.then(lambda: files.link_whole(self.checkpoints / LATEST, self.checkpoints / SOURCE))

    def save_predictions(self, predictions: Outputs, target: Domain, votes: Tensor | None) -> None:
        self.then(partial(write_predictions, self.path / PREDICTIONS, predictions, target, votes))

    def best(self) -> State:
        return self.load(BEST)

    def last_good(self, epoch: int) -> str:
        self.wait()
        return f"{self.checkpoints / LATEST} holds the last good model, of epoch {epoch}. "

    @on_main
    def wait(self) -> None:
        self._written.result()

    @on_main
    def load(self, name: str) -> State:
        self._written.result()
        weights: State = torch.load(self.checkpoints / name, map_location="cpu", weights_only=True)
        return weights

    @on_main
    def finish(self, result: Record) -> None:
        self._written.result()
        digests = {name: files.sha256(self.path / name) for name in sorted(OUTPUTS) if self._has(name)}
        self.write_json(RESULT, {**result, "sha256": digests})
        self.discard_state()
        self.close()

    def close(self) -> None:
        self._writer.shutdown()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def clear(self) -> None:
        """Remove the files of an earlier run and no others; the state last, so that no other file can outlive it."""
        if not self.path.is_dir():
            return
        self.claim()
        for name in (RESULT, CERTIFICATE, f"{CHECKPOINTS}/{CERTIFIED}", *OUTPUTS):
            (self.path / name).unlink(missing_ok=True)
        self.discard_state()

    def write_json(self, name: str, content: Record) -> None:
        files.write_json(self.path / name, content)

    def discard_state(self) -> None:
        (self.path / STATE).unlink(missing_ok=True)

    def _has(self, name: str) -> bool:
        return (self.path / name).is_file()

    def _write_files_of_epoch(self, state: State) -> None:
        write_weights(self.checkpoints / LATEST, state["snapshot"]["parts"]["model"])
        if state["selected"]:
            files.link_whole(self.checkpoints / LATEST, self.checkpoints / BEST)
            self._best_sha256 = files.sha256(self.checkpoints / BEST)
        lines = [json.dumps(metrics) + "\n" for metrics in state["metrics"]]
        files.write_bytes(self.path / METRICS, "".join(lines).encode())

    def _read_state(self) -> State:
        state = read_sealed(self.path / STATE)
        if state["best"] is not None and not state["selected"]:
            self._verify({f"{CHECKPOINTS}/{BEST}": state["best"]})
        return state

    def _overwrites_already(self, requested: Record) -> bool:
        """Whether a run with these settings overwrote another one here, and was interrupted before all was finished."""
        with contextlib.suppress(UserError), reading(self.path, "a run"):
            recorded = self.config()
            self._read_state()
            same = recorded["versions"] == versions() and not differences(recorded, requested)
            return bool(recorded["overwrite"]) and same and not self._has(RESULT)
        return False

    def _verify(self, digests: Mapping[str, str]) -> None:
        for name, digest in digests.items():
            path = self.path / name
            if not path.is_file() or files.sha256(path) != digest:
                problem = "is not the file that the run wrote: its checksum differs" if path.is_file() else "is missing"
                raise BadFile(f"{path} {problem}", f"is this a partial copy of a run? Copy all of it, or {START_AGAIN}")


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
