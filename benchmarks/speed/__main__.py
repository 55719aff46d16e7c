"""What this package claims of its speed, measured on this machine beside the usual way."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.speed import epochs, imports, methods, step
from benchmarks.speed.timing import HEADER, Row
from tllib_ancon.training.run import versions

MEASUREMENTS: dict[str, Callable[..., Iterable[Row]]] = {
    "imports": imports.measure,
    "step": step.measure,
    "epochs": epochs.measure,
    "methods": methods.measure,
}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default="runs/speed", metavar="DIR", help="folder for the numbers")
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, default=list(MEASUREMENTS), help="by default all")
    parser.add_argument("--office31", metavar="ROOT", help="read images of this Office-31; by default drawn ones")
    parser.add_argument(
        "--cifar10", type=Path, metavar="DIR", help="networks and images of `methods`; by default drawn"
    )
    parser.add_argument("-t", "--target", default="W", help="domain of Office-31")
    parser.add_argument("-j", "--workers", type=int, default=2, metavar="N", help="processes that load images")
    args = parser.parse_args(words)
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    settings = {"root": args.office31, "cifar10": args.cifar10, "target": args.target, "workers": args.workers}
    _figures(args.out / "speed.json", ((name, MEASUREMENTS[name](**settings)) for name in args.only))
    return 0


def _figures(path: Path, groups: Iterable[tuple[str, Iterable[Row]]]) -> None:
    """Print each row as soon as it is there, and keep all."""
    started = time.perf_counter()
    print(HEADER)
    figures: dict[str, list[dict[str, object]]] = {}
    for name, rows in groups:
        figures[name] = []
        for row in rows:
            print(row, flush=True)
            figures[name].append({**asdict(row), "met": row.met})
    seconds = round(time.perf_counter() - started, 1)
    machine = {"cores": os.cpu_count(), "load": os.getloadavg()[0], **versions()}
    path.write_text(json.dumps({"figures": figures, "machine": machine, "seconds": seconds}, indent=2) + "\n")
    print(f"{seconds:.0f} s on {machine['cores']} cores, load {machine['load']:.1f}; numbers in {path}")


if __name__ == "__main__":
    sys.exit(main())
