"""What source models say of the grid's targets, and networks with a share of their batch-norm statistics, untrained.

    python -m benchmarks.left_out.shares DATA OUT  # those of benchmarks.left_out.grid; OUT/shares/*.npz
    python -m benchmarks.certification --several OUT/shares --streams 400

A file a cell: ``labels`` (N,), ``source`` and one array a share of the source's statistics, logits (N, K).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from benchmarks.do_no_harm import parser, run
from benchmarks.left_out.families import Cells, Task
from benchmarks.left_out.grid import FAMILY_CELLS
from tllib_ancon import adapt

SHARES = (0.0, 0.25, 0.5, 0.75, 0.9)


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("data", type=Path, metavar="DATA")
    arguments.add_argument("out", type=Path, metavar="OUT")
    args = arguments.parse_args(words)
    torch.set_num_threads(1)
    folder = args.out / "shares"
    folder.mkdir(parents=True, exist_ok=True)
    opened = Cells(args.data, args.out)
    for cell in FAMILY_CELLS:
        file = folder / f"{'_'.join(map(str, cell))}.npz"
        if not file.exists():
            np.savez(file, **said(opened.task(cell)))


def said(task: Task) -> dict[str, Any]:
    scores = {}
    for share in SHARES:
        own = {"method": "adabn", "epochs": 1, "batch_norm": "mixed", "batch_norm_share": share, "save_logits": True}
        with TemporaryDirectory() as log:
            adapt(task.model, task.images, labels=task.labels.tolist(), log=log, **{**task.settings, **own})
            for epoch, name in enumerate(("source", f"share {share}")):
                with np.load(f"{log}/logits/epoch-{epoch:03d}.npz") as kept:
                    scores |= {"labels": kept["labels"], name: kept["logits"]}
    return scores


if __name__ == "__main__":
    run(main)
