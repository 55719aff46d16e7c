"""What this package claims of its speed, measured on this machine beside the usual way."""

import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks import parser
from benchmarks.speed import imports, step
from benchmarks.speed.timing import HEADER, Row
from tllib_ancon.runs.record import versions

MEASUREMENTS: dict[str, Callable[..., Iterable[Row]]] = {
    "imports": imports.measure,
    "step": step.measure,
}


def main(words=None):
    arguments = parser("benchmarks.speed", __doc__)
    arguments.add_argument("--out", type=Path, default="runs/speed", metavar="DIR", help="folder for the numbers")
    arguments.add_argument("--only", nargs="+", choices=MEASUREMENTS, default=list(MEASUREMENTS), help="by default all")
    args = arguments.parse_args(words)
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    started = time.perf_counter()
    print(HEADER)
    figures = {}
    for name in args.only:
        figures[name] = []
        for row in MEASUREMENTS[name]():
            print(row, flush=True)
            figures[name].append(asdict(row))
    seconds = round(time.perf_counter() - started, 1)
    machine = {"cores": os.cpu_count(), "load": os.getloadavg()[0], **versions()}
    path = args.out / "speed.json"
    path.write_text(json.dumps({"figures": figures, "machine": machine, "seconds": seconds}, indent=2) + "\n")
    print(f"{seconds:.0f} s on {machine['cores']} cores, load {machine['load']:.1f}; numbers in {path}")


if __name__ == "__main__":
    main()
