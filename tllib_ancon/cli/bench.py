"""``tllib-ancon bench``: what this package claims of its speed and memory, measured on this machine."""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", default="ancon-bench", metavar="DIR", help="folder for bench.json and the plot")
    parser.add_argument("--office31", metavar="ROOT", help="read images of this Office-31; by default drawn ones")
    parser.add_argument("-t", "--target", default="W", help="domain of Office-31")
    parser.add_argument("-j", "--workers", type=int, default=2, metavar="N", help="processes that load images")
    parser.add_argument("--scaling", action="store_true", help="instead: time and memory by N, K and batch")


def run(args: argparse.Namespace) -> int:
    import torch

    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _scaling(out) if args.scaling else _figures(args, out)
    finally:
        torch.set_num_threads(threads)


def _figures(args: argparse.Namespace, out: Path) -> int:
    from tllib_ancon.bench import epochs, images, peak, processes, search, step, votes
    from tllib_ancon.bench.timing import Row
    from tllib_ancon.training.run_directory import versions

    started = time.perf_counter()
    measurements = {
        "step": step.measure,
        "votes": votes.measure,
        "search": search.measure,
        "images": lambda: images.measure(args.office31, args.target, workers=args.workers),
        "processes": processes.measure,
        "epochs": lambda: epochs.measure(workers=args.workers),
        "peak": peak.measure,
    }
    print(f"{'':<72}{'median':>10} {'':<9}{'quartiles':>19} {'95 % of the median':>19}  wanted")
    rows: dict[str, list[Row]] = {}
    for name, measure in measurements.items():
        rows[name] = measure()
        for row in rows[name]:
            print(line(row))
    seconds = round(time.perf_counter() - started, 1)
    machine = {"cores": os.cpu_count(), "load": os.getloadavg()[0], **versions()}
    figures = {name: [{**asdict(row), "met": row.met} for row in group] for name, group in rows.items()}
    _write(out / "bench.json", {"figures": figures, "machine": machine, "seconds": seconds})
    print(f"{seconds:.0f} s on {machine['cores']} cores, load {machine['load']:.1f}; numbers in {out / 'bench.json'}")
    return 0


def line(row: Any) -> str:
    """One row of the table."""
    wanted = _wanted(row)
    verdict = {None: "undecided" if wanted else "", True: "met", False: "NOT MET"}[row.met]
    spread, interval = _range(row.low, row.high), _range(*(row.interval or (0, 0)))
    return f"{row.name:<72}{row.value:>10.4g} {row.unit:<9}{spread:>19} {interval:>19}  {wanted}  {verdict}".rstrip()


def _range(low: float, high: float) -> str:
    return "" if low == high else f"{low:.4g} – {high:.4g}"


def _wanted(row: Any) -> str:
    if row.at_most is not None:
        return f"≤ {row.at_most:g}"
    return "" if row.at_least is None else f"≥ {row.at_least:g}"


def _scaling(out: Path) -> int:
    from tllib_ancon.bench import scaling
    from tllib_ancon.bench.on_paper import on_paper

    points = scaling.measure()
    scaling.draw(points, out / "scaling.png")
    _write(out / "scaling.json", {"points": [asdict(point) for point in points]})
    print(on_paper(points))
    print(f"curves in {out / 'scaling.png'}, numbers in {out / 'scaling.json'}")
    return 0


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
