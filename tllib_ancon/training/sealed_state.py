"""``state.pth``: all of an epoch, to continue from, under a seal that tells damage."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch

from tllib_ancon.errors import UserError
from tllib_ancon.training.files import HashingFile
from tllib_ancon.training.recorded_settings import ANEW
from tllib_ancon.training.snapshot import LARGEST, LISTS

SEAL = b"sha256:"


def write_sealed(file: HashingFile, state: Mapping[str, Any]) -> None:
    """A file of ``torch.save`` with the SHA-256 of its bytes at its end, which ``torch.load`` ignores."""
    torch.save(state, cast(BinaryIO, file))
    file.write(SEAL + file.sha256.hexdigest().encode())


def read_sealed(path: Path) -> dict[str, Any]:
    """What :func:`write_sealed` wrote; no code of the file is run, whoever wrote it.

    Raises:
        UserError: the file is damaged
    """
    content, seal, digest = path.read_bytes().rpartition(SEAL)
    if not seal or digest != hashlib.sha256(content).hexdigest().encode():
        raise UserError(f"{path} is damaged: its checksum is wrong; restore it from a copy, or {ANEW}")
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises many types on a file that is not its own
        raise UserError(f"{path} is not the state of a run; {ANEW}") from error
    if not _is_state(state):
        raise UserError(f"{path} is not the state of a run: its entries are others; {ANEW}")
    return state


def _is_state(content: Any) -> bool:
    """Whether this has the form of what :meth:`~tllib_ancon.training.run_directory.RunDirectory.save_epoch` writes."""
    if not isinstance(content, dict) or set(content) != {"snapshot", "metrics", "selected", "best"}:
        return False
    snapshot, metrics = content["snapshot"], content["metrics"]
    parts = snapshot.get("parts") if isinstance(snapshot, dict) else None
    return (
        isinstance(parts, dict)
        and isinstance(parts.get("model"), dict)
        and isinstance(metrics, list)
        and len(metrics) > 0
        and all(isinstance(line, dict) and _are_metrics(line) for line in metrics)
        and isinstance(content["selected"], bool)
        and isinstance(content["best"], str | None)
    )


def _are_metrics(line: Mapping[Any, Any]) -> bool:
    """Whether these are numbers and lists of numbers by name, the epoch's among them."""
    numbers = (number for value in line.values() for number in (value if isinstance(value, list) else [value]))
    return (
        isinstance(line.get("epoch"), int)
        and all(isinstance(name, str) for name in line)
        and all(number is None or isinstance(number, float) or _is_whole(number) for number in numbers)
    )


def are_numbers(line: Any, scores: Sequence[str]) -> bool:
    """Whether these are the metrics of an epoch, with these scores among them."""
    if not isinstance(line, dict) or not _are_metrics(line):
        return False
    return all(isinstance(line.get(name), int | float) for name in {*scores, *line} - LISTS)


def _is_whole(number: Any) -> bool:
    return isinstance(number, int) and abs(number) < LARGEST
