"""No file can grow beyond a size, at each size where a command's files end or are half written."""

from __future__ import annotations

from benchmarks.faults.commands import COMMANDS, Place
from benchmarks.faults.kills import given_again, reference
from benchmarks.faults.processes import run

NAMES = ("pretrain, ERM", "adapt, AnCon", "adapt, while a cache is built", "predict")


def sizes(name: str, place: Place) -> list[int]:
    """In bytes: none, one, half of each file, and all but its last byte."""
    files = {path.stat().st_size for path in reference(name, place).folder.rglob("*") if path.is_file()}
    return sorted({0, 1, *(size // 2 for size in files), *(size - 1 for size in files if size)})


def fill(name: str, size: int, place: Place) -> dict[str, object]:
    """Run a command where no file can grow beyond ``size``, then where it can.

    Returns: what happened, for the table
    """
    before = reference(name, place)
    place.emptied()
    ended = run(COMMANDS[name](place), largest_file=size)
    right = ended.status in (0, 2) and ended.in_one_line
    return {
        "command": name,
        "size": size,
        "status": ended.status,
        "finished": ended.status == 0,
        "wrong_exit": "" if right else f"{ended.status}: {ended.errors}",
        "left": ended.left,
    } | given_again(name, ended, before, place)
