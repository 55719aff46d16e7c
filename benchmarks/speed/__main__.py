"""What this package claims of its speed, measured on this machine beside the usual way."""

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks import parser
from benchmarks.speed import epochs, imports, methods, step
from benchmarks.speed.timing import HEADER, Row
from tllib_ancon.training.run import versions

MEASUREMENTS: dict[str, Callable[..., Iterable[Row]]] = {
    "imports": imports.measure,
    "step": step.measure,
    "epochs": epochs.measure,
    "methods": methods.measure,
}


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser("benchmarks.speed", __doc__)
    arguments.add_argument("--out", type=Path, default="runs/speed", metavar="DIR", help="folder for the numbers")
    arguments.add_argument("--only", nargs="+", choices=MEASUREMENTS, default=list(MEASUREMENTS), help="by default all")
    arguments.add_argument(
        "--cifar10", type=Path, metavar="DIR", help="networks and images of `methods`; by default drawn"
    )
    arguments.add_argument("-j", "--workers", type=int, default=2, metavar="N", help="processes that load images")
    args = arguments.parse_args(words)
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    settings = {"cifar10": args.cifar10, "workers": args.workers}
    _figures(args.out / "speed.json", ((name, MEASUREMENTS[name](**settings)) for name in args.only))


def _figures(path: Path, groups: Iterable[tuple[str, Iterable[Row]]]) -> None:
    """Print each row as soon as it is there, and keep all."""
    started = time.perf_counter()
    print(HEADER)
    figures: dict[str, list[dict[str, object]]] = {}
    for name, rows in groups:
        figures[name] = []
        for row in rows:
            print(row, flush=True)
            figures[name].append(asdict(row))
    seconds = round(time.perf_counter() - started, 1)
    machine = {"cores": os.cpu_count(), "load": os.getloadavg()[0], **versions()}
    path.write_text(json.dumps({"figures": figures, "machine": machine, "seconds": seconds}, indent=2) + "\n")
    print(f"{seconds:.0f} s on {machine['cores']} cores, load {machine['load']:.1f}; numbers in {path}")


if __name__ == "__main__":
    main()
