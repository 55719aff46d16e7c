"""A run's folder: TLLib's layout plus configuration, metrics, result, and the state to continue from."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import torch

from tllib_ancon.errors import UserError, one_line
from tllib_ancon.training.background import Background
from tllib_ancon.training.files import PARTIAL, HashingFile, copy_whole, sha256, write_whole
from tllib_ancon.training.launch import on_first
from tllib_ancon.training.lock import FolderLock
from tllib_ancon.training.recorded_settings import ANEW, differences, other_threads, refuse_other_settings, versions
from tllib_ancon.training.saved_logits import remove_logits
from tllib_ancon.training.saved_predictions import FILE as PREDICTIONS
from tllib_ancon.training.sealed_state import are_numbers, read_sealed, write_sealed
from tllib_ancon.training.snapshot import copy_to_cpu

CONFIG, METRICS, RESULT = "config.json", "metrics.jsonl", "result.json"
CHECKPOINTS = "checkpoints"
LATEST, BEST, STATE = "latest.pth", "best.pth", "state.pth"
EPOCH = "epoch-{:03d}.pth"
CERTIFICATE, CERTIFIED = "certificate.json", "certified.pth"


class Run(Protocol):
    """What a training loop asks of the place where its epochs are kept: a :class:`RunDirectory`, or
    :class:`~tllib_ancon.training.run_in_memory.RunInMemory`."""

    @property
    def path(self) -> Any: ...
    def begin(self, config: Mapping[str, Any], overwrite: bool = False) -> list[str]: ...
    def resume(self) -> tuple[dict[str, Any], list[dict[str, Any]]] | None: ...
    def save_epoch(self, snapshot: Mapping[str, Any], metrics: list[dict[str, Any]], selected: bool) -> None: ...
    def keep_epoch(self, epoch: int) -> None: ...
    def then(self, write: Callable[[], object]) -> None: ...
    def wait(self) -> None: ...
    def load(self, name: str) -> dict[str, Any]: ...
    def last_good(self, epoch: int) -> str: ...
    def finish(self, result: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...


class RunDirectory:
    """Reads and writes one run directory.

    Layout: ``config.json`` (every resolved argument, versions), ``metrics.jsonl`` (a line an epoch),
    ``predictions.npz`` if it was asked for, ``result.json`` (written last: its presence means that the run is
    finished), ``checkpoints/`` and ``visualize/``.

    A training loop calls :meth:`begin`, then :meth:`resume`, then :meth:`save_epoch` after each epoch,
    :meth:`finish` at the end and :meth:`close` whatever happened. A copy of an epoch on the host is written while the
    next epoch is trained; what reads the files here waits for it, and its error is that of the next call.

    An epoch counts once ``checkpoints/state.pth`` is written, which holds all of it; ``latest.pth``, ``best.pth`` and
    ``metrics.jsonl`` are written after it and :meth:`resume` writes them again, so that whenever the process is killed,
    they agree as soon as the run continues.

    Of many processes the first alone reads and writes; each of them calls the same methods, and gets what the first one
    read, or the error that it met.

    Args:
        path: the folder; created when something is first written
        part_of: the folder of a run of several stages of which this is one; its ``result.json`` is written when all
            have finished
    """

    def __init__(self, path: str | Path, part_of: str | Path | None = None):
        self.path = Path(path)
        self.part_of = Path(part_of or path)
        self._lock: FolderLock | None = None
        self._sha256: dict[str, str] = {}
        self._writing = Background()

    @property
    def checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    @property
    def visualize(self) -> Path:
        return self.path / "visualize"

    @property
    @on_first
    def finished(self) -> bool:
        return self._is_finished()

    @on_first
    def begin(self, config: Mapping[str, Any], overwrite: bool = False) -> list[str]:
        """Claim the directory for a run with these settings: a new one, one that was cut off here, or a finished one,
        which :attr:`finished` tells. A run that kept no epoch leaves the directory to any other.

        Args:
            overwrite: start anew where a run is kept; but a run that the same settings began so, and that was cut off,
                is continued

        Returns: what the person should know of it, a line each

        Raises:
            UserError: the directory belongs to a run with other settings (which), another process writes there, files
                of its run are missing or are not those that the run wrote, or it cannot be written
        """
        wanted = json.loads(json.dumps({**config, "threads": torch.get_num_threads()}))
        overwrite = overwrite and not self._began_so(wanted)
        if self._is_finished() and not overwrite:
            refuse_other_settings(self.path, self.config(), wanted)
            self._verify_result()
            with contextlib.suppress(OSError):
                self.discard_state()
            return []
        try:
            for folder in (self.checkpoints, self.visualize):
                folder.mkdir(parents=True, exist_ok=True)
            self._lock = self._lock or FolderLock(self.path)
            for partial in (*self.path.glob("*" + PARTIAL), *self.path.glob("*/*" + PARTIAL)):
                partial.unlink()
            if overwrite:
                self.clear()
        except OSError as error:
            raise UserError(f"run directory {self.path} cannot be written ({error})") from error
        recorded = None if overwrite else self._recorded_config()
        self._refuse_remains(recorded is not None)
        if recorded is not None and (self.checkpoints / STATE).is_file():
            refuse_other_settings(self.path, recorded, wanted)
            return other_threads(recorded.get("threads"), wanted["threads"])
        self.write_json(CONFIG, {**wanted, "versions": versions()})
        return []

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

    @on_first
    def result(self, models: Sequence[str] = (), scores: Sequence[str] = ()) -> dict[str, Any]:
        """The result of a finished run.

        Args:
            models: parts that it must have, each the metrics of an epoch
            scores: numbers that each of these must have

        Raises:
            UserError: ``result.json`` is damaged, or the result of something else
        """
        result = self._read_result()
        texts, epoch = (result.get(name) for name in ("method", "criterion")), result.get("selected_epoch", 0)
        if models and not (
            all(isinstance(text, str) for text in texts)
            and isinstance(epoch, int)
            and isinstance(result.get("held_out"), int | None)
            and all(are_numbers(result.get(name), scores) for name in models)
        ):
            raise self._no_result()
        return result

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        write_whole(self.path / name, lambda file: _write_text(file, json.dumps(content, indent=2) + "\n"))

    def save(self, name: str, weights: Mapping[str, Any]) -> str:
        """Write ``checkpoints/name`` whole; returns its SHA-256."""
        return write_whole(self.checkpoints / name, lambda file: torch.save(dict(weights), cast(BinaryIO, file)))

    @on_first
    def load(self, name: str) -> dict[str, Any]:
        """The weights that :meth:`save` wrote as ``checkpoints/name``; no code of the file is run."""
        self._writing.wait()
        weights: dict[str, Any] = torch.load(self.checkpoints / name, map_location="cpu", weights_only=True)
        return weights

    @on_first
    def save_epoch(self, snapshot: Mapping[str, Any], metrics: list[dict[str, Any]], selected: bool) -> None:
        """Keep an epoch: the state to continue from, then ``latest.pth``, ``best.pth`` and ``metrics.jsonl``.

        It returns once the epoch before is written and this one is copied.

        Args:
            snapshot: of :func:`~tllib_ancon.training.snapshot.take_snapshot`; its part ``model`` is the checkpoint
            metrics: of all epochs so far
            selected: the model of this epoch is the best so far

        Raises:
            UserError: a file of the epoch before could not be written (why); the one before that is kept
        """
        self._writing.wait()
        state = {"snapshot": snapshot, "metrics": metrics, "selected": selected, "best": self._sha256.get(BEST)}
        copied: dict[str, Any] = copy_to_cpu(state)
        self._writing.do(lambda: self._write_epoch(copied))

    @on_first
    def resume(self) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
        """Snapshot and metrics of the last epoch that :meth:`save_epoch` kept, or None.

        Raises:
            UserError: ``state.pth`` or ``best.pth`` is damaged, or ``best.pth`` is missing
        """
        if not (self.checkpoints / STATE).is_file():
            return None
        state = self._read_state()
        if state["best"] is not None and not state["selected"]:
            self._sha256[BEST] = state["best"]
        self._write_what_follows(state)
        return state["snapshot"], state["metrics"]

    def epoch_checkpoint(self, epoch: int) -> Path:
        """Where :meth:`keep_epoch` keeps the model of an epoch."""
        return self.checkpoints / EPOCH.format(epoch)

    @on_first
    def keep_epoch(self, epoch: int) -> None:
        """Keep a copy of ``latest.pth`` as the model of this epoch, the last that was given to :meth:`save_epoch`."""
        self._writing.do(lambda: copy_whole(self.checkpoints / LATEST, self.epoch_checkpoint(epoch)))

    @on_first
    def then(self, write: Callable[[], object]) -> None:
        """Write something after the files of the last epoch."""
        self._writing.do(write)

    @on_first
    def wait(self) -> None:
        """Until all is written.

        Raises:
            UserError: a file could not be written (why); the epoch before is kept
        """
        self._writing.wait()

    @on_first
    def finish(self, result: Mapping[str, Any]) -> None:
        """Write ``result.json``, with the SHA-256 of the run's files, and let go of the state and the directory.

        Raises:
            UserError: a file could not be written (why)
        """
        self._writing.wait()
        kept = [path.name for path in self.checkpoints.glob("epoch-*.pth")]
        written = [name for name in (LATEST, BEST) if name in self._sha256]
        optional = {PREDICTIONS} if (self.path / PREDICTIONS).is_file() else set()
        names = {f"{CHECKPOINTS}/{name}" for name in (*written, *kept)} | {METRICS} | optional
        self.write_json(RESULT, {**result, "sha256": {name: sha256(self.path / name) for name in sorted(names)}})
        self.discard_state()
        self.close()

    def close(self) -> None:
        """Let go of the directory, once all is written that can be."""
        self._writing.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def last_good(self, epoch: int) -> str:
        """Where the model of the last epoch is kept, as a part of a message.

        Raises:
            UserError: it could not be written (why)
        """
        self._writing.wait()
        return f"{self.checkpoints / LATEST} holds the last good model, of epoch {epoch}. "

    def discard_state(self) -> None:
        (self.checkpoints / STATE).unlink(missing_ok=True)

    def _began_so(self, wanted: Mapping[str, Any]) -> bool:
        """Whether a run with these settings overwrote another one here, and was cut off before all was finished."""
        try:
            recorded = self._recorded_config() or {}
            if not recorded.get("overwrite") or (self.part_of / RESULT).is_file():
                return False
            if recorded.get("versions") != versions() or differences(recorded, wanted):
                return False
            self._verify_result() if self._is_finished() else self._read_state()
        except (OSError, UserError):
            return False
        return True

    def _read_state(self) -> dict[str, Any]:
        state = read_sealed(self.checkpoints / STATE)
        if state["best"] is not None and not state["selected"]:
            self._verify({f"{CHECKPOINTS}/{BEST}": state["best"]})
        return state

    def _is_finished(self) -> bool:
        return (self.path / RESULT).is_file()

    def _read_result(self) -> dict[str, Any]:
        content: dict[str, Any] = _read_json(self.path / RESULT)
        return content

    def _no_result(self) -> UserError:
        return UserError(f"{self.path / RESULT} holds no result of a run of this program; {ANEW}")

    def _write_epoch(self, state: Mapping[str, Any]) -> None:
        write_whole(self.checkpoints / STATE, lambda file: write_sealed(file, state))
        self._write_what_follows(state)

    def _write_what_follows(self, state: Mapping[str, Any]) -> None:
        """The files that an epoch's state decides."""
        self._sha256[LATEST] = self.save(LATEST, state["snapshot"]["parts"]["model"])
        if state["selected"]:
            self._sha256[BEST] = copy_whole(self.checkpoints / LATEST, self.checkpoints / BEST)
        lines = "".join(json.dumps(line) + "\n" for line in state["metrics"])
        write_whole(self.path / METRICS, lambda file: _write_text(file, lines))

    def _verify_result(self) -> None:
        result = self._read_result()
        digests = result.get("sha256") if isinstance(result, dict) else None
        if not isinstance(digests, dict) or METRICS not in digests:
            raise self._no_result()
        self._verify(digests)

    def _verify(self, digests: Mapping[str, str]) -> None:
        for name, digest in digests.items():
            path = self.path / name
            problem = None if path.is_file() else "is missing"
            if problem is None and sha256(path) != digest:
                problem = "is not the file that the run wrote: its checksum differs"
            if problem:
                raise UserError(f"{path} {problem}; is this a partial copy of a run? Copy all of it, or {ANEW}")

    def _refuse_remains(self, has_config: bool) -> None:
        """Refuse what a copy without some of its files looks like, or a folder that another program keeps."""
        needed = CONFIG if not has_config else f"{CHECKPOINTS}/{STATE}"
        if has_config and (self.path / needed).is_file():
            return
        others = (METRICS, *(f"{CHECKPOINTS}/{name}" for name in (LATEST, BEST, STATE)))
        present = [name for name in others if (self.path / name).exists()]
        if present:
            raise UserError(
                f"run directory {self.path} holds {', '.join(present)} but no {needed}: it is a partial copy of a run, "
                f"or no run of this program. Copy all of it, choose another `log`, or {ANEW}"
            )

    def clear(self) -> None:
        """Remove what an earlier run of ours left here, and nothing else; the state last, so that no other file can
        outlive it unnoticed.

        Raises:
            UserError: another process writes there
        """
        if not self.path.is_dir():
            return
        self._lock = self._lock or FolderLock(self.path)
        kept = [f"{CHECKPOINTS}/{path.name}" for path in self.checkpoints.glob("epoch-*.pth")]
        models = [f"{CHECKPOINTS}/{name}" for name in (CERTIFIED, LATEST, BEST, STATE)]
        for name in (RESULT, METRICS, PREDICTIONS, CERTIFICATE, *kept, *models):
            (self.path / name).unlink(missing_ok=True)
        remove_logits(self.path)
        (self.part_of / RESULT).unlink(missing_ok=True)

    def _recorded_config(self) -> dict[str, Any] | None:
        path = self.path / CONFIG
        if not path.is_file():
            return None
        recorded = _read_json(path)
        if not isinstance(recorded, dict):
            raise UserError(f"{path} holds no configuration of a run; {ANEW}")
        return recorded


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON ({one_line(error)}); {ANEW}") from error


def _write_text(file: HashingFile, text: str) -> None:
    file.write(text.encode())
