"""How often the test of drift says "drift" at 5 % where nothing has drifted: random halves of each source's hold-out.

    python -m benchmarks.assess.level DATA OUT [--splits 200]

DATA and OUT are those of :mod:`benchmarks.assess.points`. Each row is a model; halves of one hold-out overlap between
splits, so that the rows of small ones are rough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks import parser, run
from benchmarks.assess.points import CORRUPTED, PAIRS, source_of
from benchmarks.left_out.families import Cells
from benchmarks.tables import markdown
from tllib_ancon.assessing import SourceStatistics, drift_p
from tllib_ancon.config import AssessConfig
from tllib_ancon.settings import settings_of
from tllib_ancon.training.assess import passes_of

LEVEL = 0.05


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("data", type=Path, metavar="DATA")
    arguments.add_argument("out", type=Path, metavar="OUT")
    arguments.add_argument("--splits", type=int, default=200)
    args = arguments.parse_args(words)
    torch.set_num_threads(1)
    rows = []
    for model, features in all_features(Cells(args.data, args.out, 120)):
        generator, found = np.random.default_rng(0), 0
        for _ in range(args.splits):
            one, other = np.array_split(generator.permutation(features), 2)
            known = SourceStatistics.of(one)
            found += drift_p(other, known) < LEVEL
        rows.append((model, *map(str, features.shape), f"{100 * found / args.splits:.1f} %"))
    print(markdown(["model", "images", "features", "p < 0.05"], rows, numbers=True))


def all_features(opened: Cells) -> Iterator[tuple[str, np.ndarray]]:
    """Each source model's features of its hold-out."""
    cells = {(cell.family, cell.pair.partition("-")[0], cell.seed): cell for cell in (*PAIRS, *CORRUPTED)
             if "none" not in cell.pair or cell.family == "cifar10-c"}  # fmt: skip
    for (family, name, seed), cell in cells.items():
        task = opened.task(cell)
        settings = {key: value for key, value in task.settings.items() if key in settings_of(AssessConfig)}
        source, _ = source_of(opened, cell, task)
        passes, images, _ = passes_of(AssessConfig(**settings), task.model, source)
        yield f"{family}, {name}, seed {seed}", passes.predictions(images).features.numpy()


if __name__ == "__main__":
    run(main)
