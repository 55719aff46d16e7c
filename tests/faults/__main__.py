"""Disturb commands with random faults, and write what became of them as a table.

python -m tests.faults --kills N --out DIR

The same command goes on where it was stopped. That a campaign sees what it looks for is shown by bugs that are planted
in the commands: each is found by the first kills.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.faults import hostile, kills, table
from tests.faults.commands import COMMANDS, PRETRAIN, Place
from tests.faults.processes import PLANTED, run

Fault = Callable[[], dict[str, Any]]


def main(words: Sequence[str] | None = None) -> int:
    """Returns 1 if any fault was not borne."""
    args = _arguments(words)
    for module in ("accelerate", "sklearn.manifold", "timm", "torchmetrics", "torchvision.transforms"):  # before forks
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
    text = table.page(records)
    (args.out / "faults.md").write_text(text)
    print(text, end="")
    return int(any(map(table.is_wrong, records)))


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="random kills; by default 100")
    parser.add_argument("--hostile", type=int, help="hostile files; by default as many as kills")
    parser.add_argument("--planted", type=int, default=30, help="most kills for each planted bug; by default 30")
    parser.add_argument("--no-disk", action="store_true", help="leave out full disks")
    parser.add_argument("--at-writes", action="store_true", help="no kill at a time: the same on a busy machine")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random; by default 0")
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS), metavar="NAME")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="pictures, runs, records, faults.md")
    return parser.parse_args(words)


def _prepared(folder: Path) -> Place:
    """What the commands start from."""
    place = Place(folder)
    if not place.start.exists():
        place.emptied()
        place.write_inputs()
        ended = run(place.words(f"{PRETRAIN} --epochs 6"), place)
        if ended.status != 0:
            raise RuntimeError(f"no model to start from: {ended.errors}")
        (place.work / "run/checkpoints/best.pth").rename(place.start)
    return place


def _faults(args: argparse.Namespace, place: Place) -> Iterator[tuple[str, str, Fault]]:
    """Name, kind, and the fault itself."""
    for number in range(args.kills):
        yield f"kill {number}", "kill", partial(kills.disturb, number, args.seed, place, args.commands, args.at_writes)
    for number in range(args.kills if args.hostile is None else args.hostile):
        yield f"hostile {number}", "hostile", partial(hostile.damage, number, args.seed, place)
    for name in () if args.no_disk else kills.ON_A_FULL_DISK:
        for size in kills.sizes(name, place):
            yield f"disk {name} {size}", "disk", partial(kills.fill, name, size, place)
    for bug in PLANTED if args.planted else ():
        yield f"planted, {bug}", "planted", partial(_found, bug, args, place)


def _found(bug: str, args: argparse.Namespace, place: Place) -> dict[str, Any]:
    """The first kill that finds a planted bug."""
    for number in range(args.planted):
        record = {"kind": "kill", **kills.disturb(number, args.seed, replace(place, planted=bug), [hostile.RUN])}
        if table.is_wrong(record):
            return {"command": bug, "kills": number + 1, "found": table.said(record)}
    return {"command": bug, "kills": args.planted, "found": ""}


if __name__ == "__main__":
    sys.exit(main())
