"""Put every statement to its test and write the table."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.theory.statements import page

TABLE = Path(__file__).parents[1] / "results" / "theory.md"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.theory", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of all random problems; by default 0, as in the table")
    parser.add_argument("--out", type=Path, default=TABLE, metavar="FILE", help="by default the committed table")
    args = parser.parse_args(words)
    torch.set_num_threads(1)
    text = page(args.seed)
    args.out.write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
