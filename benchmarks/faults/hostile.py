"""Files that are damaged or say something else, at each reader: one line, or an answer."""

from __future__ import annotations

import json
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from benchmarks.faults.commands import NETWORK, PICTURES, Place, adapt, predict
from benchmarks.faults.kills import reference
from benchmarks.faults.processes import run

RUN = "adapt, AnCon"


def truncated(content: bytes, generator: random.Random) -> bytes:
    return content[: generator.randrange(len(content))]


def flipped(content: bytes, generator: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(generator.choice((1, 1, 8, 64))):
        damaged[generator.randrange(len(damaged))] ^= generator.randrange(1, 256)
    return bytes(damaged)


def another_type(content: bytes, generator: random.Random) -> bytes:
    others = (
        b"",
        b"\0" * 100,
        b"[]",
        b"3",
        b'{"a": 1}',
        b"\xff\xfe\xfd",
        pickle.dumps([1, 2]),
        b"PK\x03\x04" + content,
    )
    return generator.choice(others)


def nested(content: bytes, generator: random.Random) -> bytes:
    depth = generator.choice((100, 10_000, 200_000))
    opening, closing = generator.choice(((b"[", b"]"), (b'{"a":', b"}")))
    return opening * depth + b"1" + closing * depth


def repeated(content: bytes, generator: random.Random) -> bytes:
    start = generator.randrange(len(content))
    part = content[start : start + generator.randrange(1, 200)]
    return content[:start] + part * generator.randrange(2, 50) + content[start:]


def other_values(content: bytes, generator: random.Random) -> bytes:
    """Another value in the place of one entry of a JSON file; of another file, damage."""
    try:
        entries = json.loads(content)
        entries[generator.choice(sorted(entries))] = generator.choice((None, -1, "text", [], {}, 1e308, True, [[[]]]))
        return json.dumps(entries).encode()
    except (ValueError, TypeError, IndexError):
        return flipped(content, generator)


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    truncated,
    flipped,
    another_type,
    nested,
    repeated,
    other_values,
)


def _report(place: Place) -> list[str]:
    return ["report", f"{place.work}/run", "--out", f"{place.work}/report"]


def _finished(place: Place) -> list[str]:
    return adapt("--method", "ancon")(place)


def _evaluate(place: Place) -> list[str]:
    own = ("-d", "ImageList", "-t", "dark", "--checkpoint", f"{place.work}/run/checkpoints/best.pth")
    return ["evaluate", f"{place.work}/pictures", *own, *NETWORK, *PICTURES, "-j", "0"]


def _predict(place: Place) -> list[str]:
    words = predict(place)
    return [*words[:1], f"{place.work}/pictures", *words[2:]]


READERS: dict[str, tuple[str, Callable[[Place], list[str]]]] = {
    "checkpoint": ("run/checkpoints/best.pth", _evaluate),
    "config.json, report": ("run/config.json", _report),
    "config.json, the same run": ("run/config.json", _finished),
    "result.json, report": ("run/result.json", _report),
    "result.json, the same run": ("run/result.json", _finished),
    "metrics.jsonl, report": ("run/metrics.jsonl", _report),
    "predictions.npz, report": ("run/predictions.npz", _report),
    "image list": ("pictures/image_list/dark.txt", _predict),
    "class names": ("pictures/image_list/classes.txt", _predict),
    "picture": ("pictures/dark/red/003.png", _predict),
}
"""What is damaged: where it lies, and the command that reads it."""


def damage(number: int, seed: int, place: Place) -> dict[str, object]:
    """The hostile file of this number.

    Returns: what happened, for the table
    """
    generator = random.Random(f"{seed} {number}")
    name = generator.choice(sorted(READERS))
    path, words = READERS[name]
    work = place.emptied()
    shutil.copytree(reference(RUN, place).folder, work, dirs_exist_ok=True)
    shutil.copytree(place.pictures, work / "pictures")
    change = generator.choice(DAMAGES)
    _change(work / path, change, generator)
    ended = run(words(place))
    right = (ended.status == 0 and "Traceback" not in ended.errors) or (ended.status == 2 and ended.in_one_line)
    return {
        "command": name,
        "damage": change.__name__,
        "status": ended.status,
        "finished": ended.status == 0,
        "wrong_exit": "" if right else f"{ended.status}: {ended.errors}",
        "left": ended.left,
    }


def _change(path: Path, change: Callable[[bytes, random.Random], bytes], generator: random.Random) -> None:
    path.write_bytes(change(path.read_bytes(), generator))
