"""``tllib-ancon demo``: what AnCon gains, on data that ships with its dependencies."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tllib_ancon.cli.parser import Parser

if TYPE_CHECKING:
    from tllib_ancon.paper.demo import Demo

MARK = "overwriting.json"
"""In the demo's folder while a command with ``--overwrite`` has not finished."""

TITLES = (
    "rendered digits -> handwritten digits, epoch selected by InfoMax; mean ± deviation over {seeds} seeds",
    "the same at the full learning rate, too high for a network that is trained already",
)


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "--out",
        default="ancon-demo",
        metavar="DIR",
        help="folder of the data, the runs and the results (default: ancon-demo)",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=[0, 1, 2, 3, 4],
        metavar="N",
        help="seeds, each with a source model of its own (at least 0; default: 0 1 2 3 4)",
    )
    parser.add_argument(
        "--source-epochs",
        type=int,
        default=10,
        metavar="N",
        help="passes over the images for each source model (at least 1; default: 10)",
    )
    parser.add_argument(
        "--epochs",
        type=int,
        default=12,
        metavar="N",
        help="passes over the images for each adaptation (at least 1; default: 12)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="processes at a time, of one thread each (at least 1; by default the number of cores)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace every run of an earlier demo (default: off)")
    parser.add_argument("--quiet", action="store_true", help="show only the tables (default: off)")
    parser.usage = "%(prog)s [flags]"


def run(args: argparse.Namespace) -> int:
    from tllib_ancon.data.demo import write_demo_domains
    from tllib_ancon.paper.demo import BLOCKS, Demo, summarize, table
    from tllib_ancon.report.curves import draw_curves

    started = time.perf_counter()
    out = Path(args.out)
    demo = Demo(out, tuple(args.seeds), args.source_epochs, args.epochs, args.jobs or os.cpu_count() or 1)
    if args.overwrite:
        _clear(demo, out / MARK)
    write_demo_domains(out / "data")
    results = demo.run(lambda line: None if args.quiet else print(line, file=sys.stderr, flush=True))
    usual, full_rate = (summarize(results[block]) for block in BLOCKS)
    seconds = round(time.perf_counter() - started, 1)
    summary = {**usual, BLOCKS[1]: full_rate, "seconds": seconds}
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    for name, block in zip(("curves", "curves-full-learning-rate"), BLOCKS, strict=True):
        draw_curves(demo.metrics(block), out / f"{name}.png")
    (out / MARK).unlink(missing_ok=True)
    for title, rows in zip(TITLES, (usual, full_rate), strict=True):
        print(table(rows, title.format(seeds=len(demo.seeds))))
    print(f"{seconds:.0f} s; numbers in {out / 'summary.json'}, curves in {out / 'curves.png'}")
    return 0


def _clear(demo: Demo, mark: Path) -> None:
    """Remove the runs of an earlier demo, unless the same command has done so before and was cut off."""
    from tllib_ancon.training.files import write_bytes
    from tllib_ancon.training.recorded_settings import versions

    epochs = [demo.source_epochs, demo.epochs]
    content = json.dumps({"seeds": demo.seeds, "epochs": epochs, "versions": versions()}).encode()
    if mark.is_file() and mark.read_bytes() == content:
        return
    for directory in demo.directories():
        directory.clear()
    mark.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(mark, content)
