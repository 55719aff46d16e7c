"""What this package claims of its speed and memory, measured on this machine beside the usual way.

``--scaling`` and ``--large`` measure something else instead.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed import (
    augmentation,
    epochs,
    images,
    large,
    on_paper,
    peak,
    predictions,
    processes,
    scaling,
    search,
    step,
    votes,
    writes,
)
from benchmarks.speed.timing import Row
from tllib_ancon.training.recorded_settings import versions

Measurement = Callable[[], Iterable[Row]]
MEASUREMENTS = (
    "step",
    "votes",
    "search",
    "images",
    "augmentation",
    "processes",
    "epochs",
    "writes",
    "predictions",
    "peak",
)
HEADER = f"{'':<72}{'median':>10} {'':<9}{'quartiles':>19} {'95 % of the median':>19}  wanted"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default="runs/speed", metavar="DIR", help="folder for the numbers")
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, default=MEASUREMENTS, help="by default all")
    parser.add_argument("--office31", metavar="ROOT", help="read images of this Office-31; by default drawn ones")
    parser.add_argument("-t", "--target", default="W", help="domain of Office-31")
    parser.add_argument("-j", "--workers", type=int, default=2, metavar="N", help="processes that load images")
    parser.add_argument("--scaling", action="store_true", help="instead: time and memory by N, K and batch")
    parser.add_argument(
        "--large", nargs="*", choices=large.MEASUREMENTS, metavar="WHAT",
        help=f"instead: a million pictures, for an hour; of {', '.join(large.MEASUREMENTS)}, by default all",
    )  # fmt: skip
    args = parser.parse_args(words)
    args.out.mkdir(parents=True, exist_ok=True)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if args.scaling:
            _scaling(args.out)
        else:
            _figures(
                args.out, _measurements(args) if args.large is None else {"large": partial(large.measure, args.large)}
            )
    finally:
        torch.set_num_threads(threads)
    return 0


def _measurements(args: argparse.Namespace) -> dict[str, Measurement]:
    """Those that are asked for."""
    every: dict[str, Measurement] = {
        "step": step.measure,
        "votes": votes.measure,
        "search": search.measure,
        "images": lambda: images.measure(args.office31, args.target, workers=args.workers),
        "augmentation": augmentation.measure,
        "processes": processes.measure,
        "epochs": lambda: epochs.measure(workers=args.workers),
        "writes": writes.measure,
        "predictions": lambda: predictions.measure(args.office31, workers=args.workers),
        "peak": peak.measure,
    }
    return {name: every[name] for name in args.only}


def _figures(out: Path, measurements: Mapping[str, Measurement]) -> None:
    started = time.perf_counter()
    print(HEADER)
    rows: dict[str, list[Row]] = {}
    for name, measure in measurements.items():
        rows[name] = []
        for row in measure():
            rows[name].append(row)
            print(line(row), flush=True)
    seconds = round(time.perf_counter() - started, 1)
    machine = {"cores": os.cpu_count(), "load": os.getloadavg()[0], **versions()}
    figures = {name: [{**asdict(row), "met": row.met} for row in group] for name, group in rows.items()}
    file = out / ("large.json" if "large" in measurements else "speed.json")
    _write(file, {"figures": figures, "machine": machine, "seconds": seconds})
    print(f"{seconds:.0f} s on {machine['cores']} cores, load {machine['load']:.1f}; numbers in {file}")


def line(row: Row) -> str:
    """One row of the table."""
    wanted = _wanted(row)
    verdict = {None: "undecided" if wanted else "", True: "met", False: "NOT MET"}[row.met]
    spread, interval = _range(row.low, row.high), _range(*(row.interval or (0, 0)))
    value = f"{row.value:,.0f}" if abs(row.value) >= 1000 else f"{row.value:.4g}"
    return f"{row.name:<72}{value:>10} {row.unit:<9}{spread:>19} {interval:>19}  {wanted}  {verdict}".rstrip()


def _range(low: float, high: float) -> str:
    return "" if low == high else f"{low:.4g} – {high:.4g}"


def _wanted(row: Row) -> str:
    if row.at_most is not None:
        return f"≤ {row.at_most:g}"
    return "" if row.at_least is None else f"≥ {row.at_least:g}"


def _scaling(out: Path) -> None:
    points = scaling.measure()
    scaling.draw(points, out / "scaling.png")
    _write(out / "scaling.json", {"points": [asdict(point) for point in points]})
    print(on_paper.on_paper(points))
    print(f"curves in {out / 'scaling.png'}, numbers in {out / 'scaling.json'}")


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
