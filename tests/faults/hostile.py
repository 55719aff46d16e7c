"""Files that are damaged or say something else, at each reader: one line, or an answer."""

import json
import pickle
import random
import shutil
from collections.abc import Callable

from tests.faults.commands import COMMANDS, READ, Place
from tests.faults.kills import reference
from tests.faults.processes import run

RUN = "adapt, AnCon"
OTHERS = (b"", b"\0" * 100, b"[]", b"3", b'{"a": 1}', b"\xff\xfe\xfd", pickle.dumps([1, 2]))

EVALUATE = "evaluate {work}/pictures -d ImageList -t dark --checkpoint {work}/run/checkpoints/best.pth " + READ
PREDICT = COMMANDS["predict"].replace("{pictures}", "{work}/pictures")
REPORT = "report {work}/run --out {work}/report"
READERS = {
    "checkpoint": ("run/checkpoints/best.pth", EVALUATE),
    "config.json, report": ("run/config.json", REPORT),
    "config.json, the same run": ("run/config.json", COMMANDS[RUN]),
    "result.json, report": ("run/result.json", REPORT),
    "result.json, the same run": ("run/result.json", COMMANDS[RUN]),
    "metrics.jsonl, report": ("run/metrics.jsonl", REPORT),
    "predictions.npz, report": ("run/predictions.npz", REPORT),
    "image list": ("pictures/image_list/dark.txt", PREDICT),
    "class names": ("pictures/image_list/classes.txt", PREDICT),
    "picture": ("pictures/dark/red/003.png", PREDICT),
}
"""What is damaged: where it lies, and the command that reads it."""


def truncated(content: bytes, generator: random.Random) -> bytes:
    return content[: generator.randrange(len(content))]


def flipped(content: bytes, generator: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(generator.choice((1, 1, 8, 64))):
        damaged[generator.randrange(len(damaged))] ^= generator.randrange(1, 256)
    return bytes(damaged)


def another_type(content: bytes, generator: random.Random) -> bytes:
    return generator.choice((*OTHERS, b"PK\x03\x04" + content))


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


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...]
DAMAGES = (truncated, flipped, another_type, nested, repeated, other_values)


def damage(number: int, seed: int, place: Place) -> dict[str, object]:
    """The hostile file of this number. Returns what happened, for the table."""
    generator = random.Random(f"{seed} {number}")
    name = generator.choice(sorted(READERS))
    path, command = READERS[name]
    work = place.emptied()
    shutil.copytree(reference(RUN, place).folder, work, dirs_exist_ok=True)
    shutil.copytree(place.pictures, work / "pictures")
    change = generator.choice(DAMAGES)
    (work / path).write_bytes(change((work / path).read_bytes(), generator))
    ended = run(place.words(command), place)
    right = ended.in_one_line if ended.status == 2 else ended.status == 0 and "Traceback" not in ended.errors
    return {"command": name, "damage": change.__name__, "finished": ended.status == 0, **ended.record(right)}
