"""What AnCon adds to a training step of self-training, measured on this machine."""

from pathlib import Path

import pandas as pd
import torch

from benchmarks import parser
from benchmarks.speed import step


def main(words=None):
    arguments = parser("benchmarks.speed", __doc__)
    arguments.add_argument("--out", type=Path, metavar="FILE.csv", help="gets the rows")
    args = arguments.parse_args(words)
    torch.set_num_threads(1)
    rows = pd.DataFrame(step.measure())
    print(rows.to_string(index=False))
    if args.out:
        rows.to_csv(args.out, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
