"""Disturb commands with random faults, and write what became of them as a table.

python -m benchmarks.faults --kills N --out DIR

The same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.faults import disk, hostile, kills, table
from benchmarks.faults.commands import COMMANDS, Place, pretrain, write_pictures
from benchmarks.faults.processes import run

IMPORTED = ("accelerate", "sklearn.manifold", "timm", "torchmetrics", "torchvision.transforms")
"""What commands import slowly is there before they are forked."""

Fault = Callable[[], dict[str, Any]]


def main(words: Sequence[str] | None = None) -> int:
    """Returns 1 if any fault was not borne."""
    args = _arguments(words)
    for module in IMPORTED:
        import_module(module)
    place = _prepared(args.out.resolve())
    path = args.out / "records.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    known = {record["name"] for record in records}
    for name, kind, fault in _faults(args, place):
        if name in known:
            continue
        record = {"name": name, "kind": kind, **fault()}
        with open(path, "a") as file:
            file.write(json.dumps(record) + "\n")
        records.append(record)
        print(f"{name}: {record['command']}" + " WRONG" * table.is_wrong(record), file=sys.stderr, flush=True)
    text = table.markdown(records)
    (args.out / "faults.md").write_text(text)
    print(text, end="")
    return int(any(map(table.is_wrong, records)))


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="random kills; by default 100")
    parser.add_argument("--hostile", type=int, help="hostile files; by default as many as kills")
    parser.add_argument("--no-disk", action="store_true", help="leave out full disks")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random; by default 0")
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS), metavar="NAME")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="pictures, runs, records, faults.md")
    return parser.parse_args(words)


def _prepared(folder: Path) -> Place:
    """The pictures and the model that the commands start from."""
    place = Place(folder)
    if not place.start.exists():
        if not place.pictures.exists():
            write_pictures(place.pictures)
        place.emptied()
        ended = run(pretrain("--epochs", "6")(place))
        if ended.status != 0:
            raise RuntimeError(f"no model to start from: {ended.errors}")
        (place.work / "run/checkpoints/best.pth").rename(place.start)
    return place


def _faults(args: argparse.Namespace, place: Place) -> Iterator[tuple[str, str, Fault]]:
    """Name, kind, and the fault itself."""
    for number in range(args.kills):
        yield f"kill {number}", "kill", partial(kills.disturb, number, args.seed, place, args.commands)
    for number in range(args.kills if args.hostile is None else args.hostile):
        yield f"hostile {number}", "hostile", partial(hostile.damage, number, args.seed, place)
    for name in () if args.no_disk else disk.NAMES:
        for size in disk.sizes(name, place):
            yield f"disk {name} {size}", "disk", partial(disk.fill, name, size, place)


if __name__ == "__main__":
    sys.exit(main())
