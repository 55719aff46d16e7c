"""All that a command left in a folder, and where two of them differ by a bit."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

SPEED = {"images_per_second", "sha256"}
"""What a run measures of its own speed, and the checksums of files that hold it."""

WITHOUT_CONTENT = {".txt", ".lock", ""}
"""Logs of commands and files of locks, of which the names are compared alone."""


def outcome(folder: Path) -> dict[str, Any]:
    """Path below the folder -> content of every file."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): _content(path) for path in paths}


def differences(first: Any, second: Any, name: str = "") -> list[str]:
    """Where two nested values differ by a bit."""
    if isinstance(first, dict) and isinstance(second, dict):
        alone = [f"{name}/{key} (missing)" for key in first.keys() ^ second.keys()]
        common = first.keys() & second.keys()
        return alone + [place for key in common for place in differences(first[key], second[key], f"{name}/{key}")]
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        pairs = enumerate(zip(first, second, strict=True))
        return [place for number, pair in pairs for place in differences(*pair, f"{name}[{number}]")]
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        same = first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()
        return [] if same else [name]
    return [] if type(first) is type(second) and first == second else [name]


def _content(path: Path) -> Any:
    if path.suffix == ".pth":
        return _plain(torch.load(path, map_location="cpu", weights_only=True))
    if path.suffix == ".json":
        return _plain(json.loads(path.read_text()))
    if path.suffix == ".jsonl":
        return [_plain(json.loads(line)) for line in path.read_text().splitlines()]
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    if path.suffix == ".csv":
        with open(path, newline="") as file:
            return list(csv.reader(file))
    return None if path.suffix in WITHOUT_CONTENT else path.read_bytes()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(entry) for name, entry in value.items() if name not in SPEED}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value.numpy() if isinstance(value, torch.Tensor) else value
