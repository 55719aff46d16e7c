"""Assess the source model on each target, by forward passes alone: one row of CSV a point.

    python -m benchmarks.assess.points DATA OUT [--images 120]
    python -m benchmarks.assess.table OUT/assess.csv benchmarks/results/left_out*.csv

DATA and OUT are those of :mod:`benchmarks.left_out.grid`, whose source models are used. CIFAR-10-C: four networks,
fifteen corruptions, five severities, and no shift; Office-31, digits and the demo: all pairs and kinds of targets; and
each target that ``ancon-auto`` was run on. Without a shift, the images that tell the source's statistics and those that
are assessed are two halves. The same command continues what was interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks import parser, run
from benchmarks.cifar10_c.corruptions import CORRUPTIONS
from benchmarks.left_out.families import KINDS, NO_SHIFT, Cell, Cells, Task
from benchmarks.left_out.grid import CELLS
from tllib_ancon import assess
from tllib_ancon.assessing import SourceStatistics
from tllib_ancon.config import AssessConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.loading import hold_out
from tllib_ancon.data.open import as_domain, open_domain
from tllib_ancon.settings import settings_of
from tllib_ancon.training.run import RunDirectory

DEPTHS, SEVERITIES = (20, 32, 44, 56), (1, 2, 3, 4, 5)
SOURCE_IMAGES = 1000
"""At most, of the test set of CIFAR-10, none of which is assessed."""
DIGITS = ("mnist-usps", "usps-mnist", "mnist-mnist_m", "usps-mnist_m", "mnist-none", "usps-none")
PAIRS = (
    *(Cell("office31", f"{one}-{to}", "equal") for one, to in product("ADW", ("A", "D", "W", NO_SHIFT)) if one != to),
    *(Cell("digits", pair, kind) for pair, kind in product(DIGITS, KINDS)),
    *(Cell("demo", pair, kind, seed) for pair, kind, seed in product(("handwritten", NO_SHIFT), KINDS, (0, 1))),
)  # fmt: skip
CORRUPTED = tuple(
    Cell("cifar10-c", f"resnet{depth}-{pair}", "equal")
    for depth in DEPTHS
    for pair in (f"{NO_SHIFT}-0", *(f"{name}-{severity}" for name, severity in product(CORRUPTIONS, SEVERITIES)))
)
ADAPTED = tuple(cell for cells in CELLS.values() for cell in cells)
ESTIMATES = ("atc", "doc", "aetta", "agreement")
COLUMNS = ["grid", *Cell._fields, "images", "accuracy", *ESTIMATES, "drift_p"]


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("data", type=Path, metavar="DATA")
    arguments.add_argument("out", type=Path, metavar="OUT")
    arguments.add_argument("--images", type=int, default=120, help="of a point of CIFAR-10-C (default: 120)")
    arguments.add_argument("--grids", nargs="+", choices=("adapted", "pairs", "corrupted"))
    args = arguments.parse_args(words)
    torch.set_num_threads(1)
    file = args.out / "assess.csv"
    known: dict[Any, SourceStatistics | None] = {}
    made = set(pd.read_csv(file)[COLUMNS[:5]].itertuples(index=False, name=None)) if file.exists() else set()
    grids = {"adapted": (ADAPTED, 800), "pairs": (PAIRS, 800), "corrupted": (CORRUPTED, args.images)}
    for grid in args.grids or grids:
        cells, images = grids[grid]
        opened = Cells(args.data, args.out, images)
        for cell in dict.fromkeys(cells):
            if (grid, *cell) in made:
                continue
            row = {"grid": grid, **cell._asdict(), **point(opened, cell, known)}
            pd.DataFrame([row])[COLUMNS].to_csv(file, mode="a", header=not file.exists(), index=False)


def point(opened: Cells, cell: Cell, known: dict[Any, SourceStatistics | None]) -> dict[str, Any]:
    task = opened.task(cell)
    settings = {name: value for name, value in task.settings.items() if name in settings_of(AssessConfig)}
    model = task.model if isinstance(task.model, str) else cell.pair.partition("-")[0]
    source, target = source_of(opened, cell, task)
    key = (model, source.fingerprint())
    found = assess(task.model, target, source=known.get(key, source), answers=target.labels, **settings)
    known[key] = found.source
    numbers = {name: round(value, 4) for name, value in {"accuracy": found.accuracy, **found.estimates}.items()}
    return {"images": found.images, **numbers, "drift_p": found.drift_p}


def source_of(opened: Cells, cell: Cell, task: Task) -> tuple[Domain, Domain]:
    """Labelled images that the model was not trained on, and those of the target that are not among them."""
    target = task.images if isinstance(task.images, Domain) else as_domain(task.images, labels=task.labels)
    if not isinstance(task.model, str):
        with np.load(opened.data / "cifar10" / "test.npz") as file:
            images, labels = file["x"], file["y"].astype(np.int64)
        mine = np.random.default_rng(1).permutation(len(images))[:SOURCE_IMAGES]
        others = np.flatnonzero(~np.isin(opened.positions(cell, labels, 10), mine))
        return as_domain(images[mine], labels=labels[mine]), target.subset(others)
    config = RunDirectory(task.model).config()
    domain = open_domain(config["root"], config["data"], config["source"], allow_outside=True)
    held = domain.subset(hold_out(len(domain), config["hold_out"], config["seed"])[1])
    if not cell.pair.endswith(NO_SHIFT) or cell.family == "digits":
        return held, target
    half = np.random.default_rng(1).permutation(len(held))[: len(held) // 2]
    source = held.subset(half)
    return source, target.subset(np.flatnonzero(~np.isin(target.positions, source.positions)))


if __name__ == "__main__":
    run(main)
