"""Kept files whose checksums are right and whose content is not that of the run: one line, or a run that ends."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.domains_on_disk import small_arguments
from tests.end_to_end.cutting import cut_in_the_second_epoch
from tllib_ancon.cli.main import main
from tllib_ancon.training import files
from tllib_ancon.training.adaptation import Adaptation
from tllib_ancon.training.run_directory import STATE
from tllib_ancon.training.sealed_state import read_sealed, write_sealed
from tllib_ancon.training.source_training import SourceTraining

METHODS = {
    "adapt": [["ancon", "--storage", "sparse"], ["elr"], ["nrc+ancon", "--search", "cached"], ["aad"]],
    "pretrain": [["erm"], ["cdan", "-t", "dark", "-i", "3"]],
}
OTHERS: tuple[Any, ...] = (None, "text", -1, 10**400, 2.5, float("nan"), [], {"a": 1}, torch.zeros(2, dtype=torch.bool))
MOST_ALIKE = 2
"""Of the entries of a list or of tensors of a part, as the 624 numbers of a generator, so many are changed."""
CHANGES = 12
"""Of each method."""


def cut_run(domains: Path, start: Path, log: Path, command: str, method: list[str], monkeypatch: Any) -> list[str]:
    """The words of a run that has one epoch behind it."""
    own = ["-t", "dark", "--checkpoint", str(start)] if command == "adapt" else []
    words = [command, *small_arguments(domains), *own, "--method", *method, "--epochs", "2", "--log", str(log)]
    cut_in_the_second_epoch(monkeypatch, words, Adaptation if command == "adapt" else SourceTraining)
    return words


def state_of(log: Path) -> dict[str, Any]:
    return read_sealed(log / "checkpoints" / STATE)


def seal(log: Path, state: Any) -> None:
    path = log / "checkpoints" / STATE
    files.write_whole(path, lambda file: write_sealed(file, state))


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each entry of nested dicts and lists, of entries alike to a few."""
    if at:
        yield at
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for number, (key, entry) in enumerate(entries):
        if isinstance(key, str) or number < MOST_ALIKE:
            yield from places(entry, (*at, key))


def entry(state: Any, at: tuple[Any, ...]) -> Any:
    return reduce(lambda inside, key: inside[key], at, state)


def changed(state: Any, at: tuple[Any, ...], other: Any) -> Any:
    """The state with another value there."""
    state = copy.deepcopy(state)
    inside = state
    for key in at[:-1]:
        inside[key] = list(inside[key]) if isinstance(inside[key], tuple) else inside[key]
        inside = inside[key]
    inside[at[-1]] = other
    return state


def others(value: Any) -> Iterator[Any]:
    """What may lie in the place of a value: other types, and tensors of its type with other numbers."""
    yield from OTHERS
    if isinstance(value, torch.Tensor) and value.dtype != torch.bool:
        kind = torch.finfo(value.dtype) if value.is_floating_point() else torch.iinfo(value.dtype)
        yield from (torch.full_like(value, number) for number in (kind.min, kind.max, 3))


def ends_in_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    status, shown = main(words), capsys.readouterr().err
    assert status in (0, 2)
    assert len(shown.splitlines()) == status // 2
    return shown


@pytest.mark.parametrize(
    ("command", "method"), [(command, method) for command in METHODS for method in METHODS[command]]
)
def test_any_entry_may_be_anything(
    domains, source_checkpoint, tmp_path, capsys, monkeypatch, command: str, method: list[str]
) -> None:
    words = cut_run(domains, source_checkpoint, tmp_path / "run", command, method, monkeypatch)
    capsys.readouterr()
    shutil.copytree(tmp_path / "run", tmp_path / "kept")
    state = state_of(tmp_path / "kept")
    changes = [(at, other) for at in places(state) for other in others(entry(state, at))]
    for at, other in random.Random(0).sample(changes, CHANGES):
        shutil.rmtree(tmp_path / "run")
        shutil.copytree(tmp_path / "kept", tmp_path / "run")
        seal(tmp_path / "run", changed(state, at, other))
        ends_in_one_line(words, capsys)


@pytest.mark.parametrize("command", ["adapt", "pretrain"])
def test_any_entry_of_the_result_may_be_anything(domains, source_checkpoint, tmp_path, capsys, command: str) -> None:
    own = ["-t", "dark", "--checkpoint", str(source_checkpoint)] if command == "adapt" else []
    words = [command, *small_arguments(domains), *own, "--epochs", "1", "--log", str(tmp_path / "run")]
    assert main(words) == 0
    path = tmp_path / "run" / "result.json"
    result = json.loads(path.read_text())
    for at in places({name: value for name, value in result.items() if name != "sha256"}):
        for other in (None, "text", {"a": 1}):
            path.write_text(json.dumps(changed(result, at, other)))
            ends_in_one_line(words, capsys)
