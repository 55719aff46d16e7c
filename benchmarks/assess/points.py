"""Measure estimates without labels beside the true accuracy: one row of CSV a point.

    python -m benchmarks.assess.points DATA OUT [--images 120] [--grids adapted collapsed untrained]
    python -m benchmarks.assess.points DATA OUT --drift   # how often it is found at 5 % between halves of one hold-out
    python -m benchmarks.assess.points DATA OUT --table   # of OUT/assess.csv

DATA and OUT are those of :mod:`benchmarks.left_out.grid`, whose source models are used. The grids:

- ``pairs`` and ``corrupted``: the source model on each target of Office-31, digits and the demo, and on CIFAR-10-C with
  four networks, fifteen corruptions and five severities. Without a shift, the hold-out and the target are two halves.
- ``adapted``: the same networks after ``ancon-auto``, the last epoch.
- ``collapsed``: after self-training at a learning rate of 3, which was chosen because accuracy falls.
- ``untrained``: with new random weights.
- ``folded``: ResNet-20 without batch-norm layers, which are folded into its convolutions, under fifteen corruptions.
  Its agreement is that of an image and its mirror image.

``adapted``, ``collapsed`` and ``untrained`` assess ten targets of three families each, at most 400 images a target. The
same command resumes after an interruption.

The table has the error and the left-out coverage of each estimate. Its families are those of the source models, and the
other grids. An estimate's interval is chosen on all families but one and judged on that one. It reaches from the lowest
of the other families' 5 % quantiles of accuracy minus estimate to the highest of their 95 % quantiles.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from benchmarks import folders, run
from benchmarks.assess.estimates import Calibrated
from benchmarks.cifar10_c.corruptions import CORRUPTIONS
from benchmarks.left_out.families import FAMILIES, KINDS, NO_SHIFT, Cell, Cells, Task
from benchmarks.tables import markdown, record, recorded
from tllib_ancon import adapt
from tllib_ancon.config.assess import AssessConfig
from tllib_ancon.config.settings import settings_of
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.loading import hold_out
from tllib_ancon.data.open import as_domain, open_domain
from tllib_ancon.data.transforms import mirror
from tllib_ancon.measures.indicators import SourceStatistics, drift_p
from tllib_ancon.training.assess import _passes_of, _ShuffledPasses
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
FOLDED = tuple(Cell("cifar10-c", f"resnet20-{name}-5", "equal") for name in CORRUPTIONS)
GRIDS = {"pairs": (PAIRS, 800), "corrupted": (CORRUPTED, 120), "folded": (FOLDED, 1000)}
GRIDS |= dict.fromkeys((*CHANGES, "untrained"), (CHANGED, 400))
"""Targets of each grid, and the most images of a target."""
ESTIMATES = ("atc", "doc", "aetta", "agreement")
TAILS = (0.05, 0.95)
JUDGED = (*FAMILIES, *CHANGES, "untrained", "folded")
COLUMNS = ["grid", *Cell._fields, "images", "accuracy", *ESTIMATES, "drift_p"]


def main(words: Sequence[str] | None = None) -> None:
    arguments = folders(__spec__.name, __doc__)
    arguments.add_argument("--images", type=int, default=120, help="of a point of CIFAR-10-C (default: 120)")
    arguments.add_argument("--grids", nargs="+", choices=GRIDS, default=[*GRIDS])
    arguments.add_argument("--drift", action="store_true", help="print the table of the test of drift instead")
    arguments.add_argument("--table", action="store_true", help="print the table of errors and coverage instead")
    args = arguments.parse_args(words)
    torch.set_num_threads(1)
    file = args.out / "assess.csv"
    if args.drift or args.table:
        print(table(pd.read_csv(file)) if args.table else drift_level(Cells(args.data, args.out, 120)))
        return
    made = recorded(file, COLUMNS[:5])
    for grid in args.grids:
        cells, images = GRIDS[grid]
        opened = Cells(args.data, args.out, args.images if grid == "corrupted" else images)
        for cell in cells:
            if (grid, *cell) in made:
                continue
            record(file, [{"grid": grid, **cell._asdict(), **point(opened, cell, grid)}], COLUMNS)


def drift_level(opened: Cells) -> str:
    """How often p < 0.05 between random halves of each source's hold-out, of 200 splits."""
    models = {(cell.family, cell.pair.partition("-")[0], cell.seed): cell for cell in (*PAIRS, *CORRUPTED)
              if "none" not in cell.pair or cell.family == "cifar10-c"}  # fmt: skip
    rows = []
    for (family, name, seed), cell in models.items():
        task = opened.task(cell)
        source, _ = source_of(opened, cell, task)
        features, generator = passes_at(task, source).predictions(source).features.numpy(), np.random.default_rng(0)
        halves = (np.array_split(generator.permutation(features), 2) for _ in range(200))
        found = np.mean([drift_p(other, SourceStatistics.of(one)) < 0.05 for one, other in halves])
        rows.append((f"{family}, {name}, seed {seed}", *features.shape, f"{100 * found:.1f} %"))
    return markdown(["model", "images", "features", "p < 0.05"], rows, numbers=True)


def point(opened: Cells, cell: Cell, grid: str) -> dict[str, Any]:
    task = opened.task(cell)
    source, target = source_of(opened, cell, task)
    passes = changed(passes_at(task, target), task, grid)
    known, found = passes.predictions(source), passes.predictions(target)
    calibrated = Calibrated.on(known.logits, source.labels[known.indices])
    classes = found.logits.argmax(1).numpy()
    folded = grid == "folded"
    other = passes.predictions(target, view=mirror).logits.argmax(1).numpy() if folded else passes.mixed(target)
    numbers = {
        "accuracy": float((classes == target.labels[found.indices]).mean()),
        "atc": calibrated.atc(found.logits),
        "doc": calibrated.doc(found.logits),
        **scores_under_dropout(found, passes.classifier.head),
        "agreement": float((classes == other).mean()),
    }
    drift = drift_p(found.features, SourceStatistics.of(known.features))
    return {"images": len(target), **{name: round(value, 4) for name, value in numbers.items()}, "drift_p": drift}


def passes_at(task: Task, target: Domain) -> _ShuffledPasses:
    settings = {name: value for name, value in task.settings.items() if name in settings_of(AssessConfig)}
    return _passes_of(AssessConfig(**settings), task.model, target)[0]


def changed(passes: _ShuffledPasses, task: Task, grid: str) -> _ShuffledPasses:
    """The same passes of the network of a grid."""
    if grid in CHANGES:
        settings = {**task.settings, **CHANGES[grid], "criterion": "last"}
        adapted = adapt(task.model, task.images, **settings).model
        own = passes.classifier if isinstance(task.model, str) else passes.classifier.network
        own.load_state_dict(adapted.state_dict())
    if grid == "folded":
        for module, number in product([*passes.classifier.modules()], "12"):
            if isinstance(norm := getattr(module, f"bn{number}", None), nn.BatchNorm2d):
                setattr(module, f"conv{number}", fuse_conv_bn_eval(getattr(module, f"conv{number}"), norm))
                setattr(module, f"bn{number}", nn.Identity())
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


def table(points: pd.DataFrame) -> str:
    points["family"] = points.grid.where(points.grid.isin(JUDGED), points.family)
    rows = [
        (f"{family} ({(points.family == family).sum()})", *(judged(points, family, name) for name in ESTIMATES))
        for family in JUDGED
    ]
    ends = ("{:+.1f} to {:+.1f}".format(*(100 * end for end in errors(points, name))) for name in ESTIMATES)
    return markdown(["left out", *ESTIMATES], [*rows, ("none", *ends)])


def judged(points: pd.DataFrame, family: str, estimate: str) -> str:
    """Mean absolute error, and how often the other families' interval holds; both in percent."""
    left_out = points[points.family == family]
    difference = left_out.accuracy - left_out[estimate]
    inside = difference.between(*errors(points[points.family != family], estimate)).mean()
    return f"{100 * difference.abs().mean():.1f}; {100 * inside:.0f}"


def errors(points: pd.DataFrame, estimate: str) -> tuple[float, float]:
    """The lowest and the highest of the families' quantiles of accuracy minus estimate."""
    differences = (points.accuracy - points[estimate]).groupby(points.family)
    return float(differences.quantile(TAILS[0]).min()), float(differences.quantile(TAILS[1]).max())


if __name__ == "__main__":
    run(main)
