"""What AnCon adds to a training step of self-training, measured on this machine."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks import parser
from benchmarks.speed import step
from benchmarks.speed.timing import HEADER
from tllib_ancon.runs.record import versions


def main(words=None):
    arguments = parser("benchmarks.speed", __doc__)
    arguments.add_argument("--out", type=Path, default="runs/speed", metavar="DIR", help="folder for the numbers")
    args = arguments.parse_args(words)
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    rows = step.measure()
    print(HEADER, *rows, sep="\n")
    machine = {"cores": os.cpu_count(), "load": os.getloadavg()[0], **versions()}
    content = {"rows": [asdict(row) for row in rows], "machine": machine}
    (args.out / "speed.json").write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
