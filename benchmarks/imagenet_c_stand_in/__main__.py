"""Write the stand-in for ImageNet-C: ``python -m benchmarks.imagenet_c_stand_in IMAGES OUT``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.imagenet_c_stand_in.corruptions import write_stand_in
from tllib_ancon.errors import UserError
from tllib_ancon.paper import plan

PLAN = Path(__file__).with_name("plan.toml")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.imagenet_c_stand_in", description=__doc__)
    parser.add_argument("images", type=Path, metavar="IMAGES", help="folder of class folders with pictures")
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write to; what it holds already is kept")
    parser.add_argument("--pairs", nargs="+", metavar="PAIR", help="names or patterns ('*/5'); by default all")
    args = parser.parse_args(words)
    try:
        pairs = plan.load(str(PLAN)).select(pairs=args.pairs).pairs
        write_stand_in(args.images, args.out, pairs, lambda text: print(text, file=sys.stderr))
    except UserError as error:
        print(f"imagenet_c_stand_in: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
