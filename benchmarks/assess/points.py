"""Measure estimates without labels beside the true accuracy: one row of CSV a point.

    python -m benchmarks.assess.points DATA OUT [--images 120] [--grids adapted collapsed untrained]
    python -m benchmarks.assess.table OUT/assess.csv

DATA and OUT are those of :mod:`benchmarks.left_out.grid`, whose source models are used. The grids:

- ``pairs`` and ``corrupted``: the source model on each target of Office-31, digits and the demo, and on CIFAR-10-C with
  four networks, fifteen corruptions and five severities. Without a shift, the hold-out and the target are two halves.
- ``adapted``: the same networks after ``ancon-auto``, the last epoch.
- ``collapsed``: after self-training at a learning rate of 3, which was chosen because accuracy falls.
- ``untrained``: with new random weights.

The last three assess ten targets of three families each, at most 400 images a target. The same command resumes after an
interruption.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from benchmarks import parser, run
from benchmarks.assess.estimates import Calibrated
from benchmarks.cifar10_c.corruptions import CORRUPTIONS
from benchmarks.left_out.families import KINDS, NO_SHIFT, Cell, Cells, Task
from tllib_ancon import adapt
from tllib_ancon.assessing import SourceStatistics, drift_p
from tllib_ancon.config import AssessConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.loading import hold_out
from tllib_ancon.data.open import as_domain, open_domain
from tllib_ancon.settings import settings_of
from tllib_ancon.training.assess import Passes, passes_of
from tllib_ancon.training.inference import scores_under_dropout
from tllib_ancon.training.run import RunDirectory

DEPTHS, SEVERITIES = (20, 32, 44, 56), (1, 2, 3, 4, 5)
SOURCE_IMAGES = 1000
"""Most images of CIFAR-10's test set in its hold-out, none of which is assessed."""
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
CHANGED = (
    *(Cell("cifar10-c", f"resnet20-{pair}", "equal") for pair in ("contrast-5", "gaussian_noise-5", "fog-3", "none-0")),
    *(Cell("digits", pair, "equal") for pair in ("mnist-usps", "usps-mnist", "mnist-mnist_m", "mnist-none")),
    *(Cell("demo", pair, "equal") for pair in ("handwritten", NO_SHIFT)),
)
"""Targets of the networks that are adapted, collapsed or untrained."""
CHANGES = {"adapted": {"method": "ancon-auto"}, "collapsed": {"method": "self-training", "lr": 3.0}}
GRIDS = {"pairs": (PAIRS, 800), "corrupted": (CORRUPTED, 120)} | dict.fromkeys((*CHANGES, "untrained"), (CHANGED, 400))
"""Targets of each grid, and the most images of a target."""
ESTIMATES = ("atc", "doc", "aetta", "agreement")
COLUMNS = ["grid", *Cell._fields, "images", "accuracy", *ESTIMATES, "drift_p"]


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("data", type=Path, metavar="DATA")
    arguments.add_argument("out", type=Path, metavar="OUT")
    arguments.add_argument("--images", type=int, default=120, help="of a point of CIFAR-10-C (default: 120)")
    arguments.add_argument("--grids", nargs="+", choices=GRIDS, default=[*GRIDS])
    args = arguments.parse_args(words)
    torch.set_num_threads(1)
    file = args.out / "assess.csv"
    made = set(pd.read_csv(file)[COLUMNS[:5]].itertuples(index=False, name=None)) if file.exists() else set()
    for grid in args.grids:
        cells, images = GRIDS[grid]
        opened = Cells(args.data, args.out, args.images if grid == "corrupted" else images)
        for cell in cells:
            if (grid, *cell) in made:
                continue
            row = {"grid": grid, **cell._asdict(), **point(opened, cell, grid)}
            pd.DataFrame([row])[COLUMNS].to_csv(file, mode="a", header=not file.exists(), index=False)


def point(opened: Cells, cell: Cell, grid: str) -> dict[str, Any]:
    task = opened.task(cell)
    source, target = source_of(opened, cell, task)
    passes = changed(passes_at(task, target), task, grid)
    known, found = passes.predictions(source), passes.predictions(target)
    calibrated = Calibrated.on(known.logits, source.labels[known.indices])
    classes = found.logits.argmax(1).numpy()
    numbers = {
        "accuracy": float((classes == target.labels[found.indices]).mean()),
        "atc": calibrated.atc(found.logits),
        "doc": calibrated.doc(found.logits),
        **scores_under_dropout(found, passes.classifier.head),
        "agreement": float((classes == passes.mixed(target)).mean()),
    }
    drift = drift_p(found.features, SourceStatistics.of(known.features))
    return {"images": len(target), **{name: round(value, 4) for name, value in numbers.items()}, "drift_p": drift}


def passes_at(task: Task, target: Domain) -> Passes:
    settings = {name: value for name, value in task.settings.items() if name in settings_of(AssessConfig)}
    return passes_of(AssessConfig(**settings), task.model, target)[0]


def changed(passes: Passes, task: Task, grid: str) -> Passes:
    """The same passes of the network of a grid."""
    if grid in CHANGES:
        settings = {**task.settings, **CHANGES[grid], "criterion": "last"}
        adapted = adapt(task.model, task.images, **settings).model
        own = passes.classifier if isinstance(task.model, str) else passes.classifier.network
        own.load_state_dict(adapted.state_dict())
    if grid == "untrained":
        torch.manual_seed(task.settings["seed"])
        for module in passes.classifier.modules():
            if isinstance(module, nn.Conv2d | nn.Linear | nn.BatchNorm1d | nn.BatchNorm2d):
                module.reset_parameters()
    return passes


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
