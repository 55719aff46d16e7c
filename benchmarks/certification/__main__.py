"""Simulate labellings and write the tables.

python -m benchmarks.certification [--streams N] [--seed N] [--out FILE]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.certification.simulation import page

TABLE = Path(__file__).parents[1] / "results" / "certification.md"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.certification", description=__doc__)
    parser.add_argument(
        "--streams", type=int, default=2000, help="random orders a row; by default 2000, as in the table"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the orders; by default 0, as in the table")
    parser.add_argument("--out", type=Path, default=TABLE, metavar="FILE", help="by default the committed table")
    args = parser.parse_args(words)
    text = page(args.streams, args.seed)
    args.out.write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
