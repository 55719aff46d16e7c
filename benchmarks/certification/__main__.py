"""Simulate labellings and write the tables; or show the table of finished runs whose target has labels.

python -m benchmarks.certification [--streams N] [--seed N] [--runs FOLDER ...] [--out FILE]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.certification import runs, simulation
from tllib_ancon.errors import UserError

TABLE = Path(__file__).parents[1] / "results" / "certification.md"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.certification", description=__doc__)
    parser.add_argument(
        "--streams", type=int, default=2000, help="random orders a row; by default 2000, as in the tables"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the orders; by default 0, as in the tables")
    parser.add_argument("--runs", type=Path, nargs="+", metavar="FOLDER", help="of finished adaptations")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="by default the committed table of simulations; that of runs is then only shown",
    )
    args = parser.parse_args(words)
    try:
        text = (
            simulation.page(args.streams, args.seed)
            if args.runs is None
            else runs.page(args.runs, args.streams, args.seed)
        )
    except UserError as error:
        print(f"certification: error: {error}", file=sys.stderr)
        return 2
    out = args.out or (TABLE if args.runs is None else None)
    if out is not None:
        out.write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
