"""Adapt in every cell of the four families, under each corruption, or with other networks: one row of CSV a run.

    python -m benchmarks.left_out.grid DATA OUT [--families …] [--variants …] [--jobs 2]
    python -m benchmarks.left_out.table OUT/runs.csv
    python -m benchmarks.left_out.grid DATA OUT --cells corruptions --variants tent shot … [--images 10000] [--epochs 3]
    python -m benchmarks.left_out.table OUT/corruptions.csv --pairs

DATA holds office31, digits, cifar10 and the weights of a MobileNetV2; OUT receives source models and the list of runs.
The same command continues what was interrupted. Labels make the targets, the variants that end in "true prior" and the
numbers, and nothing else.
"""

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import ClassVar

import numpy as np
import torch

from benchmarks import folders, run
from benchmarks.cifar10_c.corruptions import CORRUPTIONS
from benchmarks.left_out.families import EMOJI, FAMILIES, FULL_RATE, KINDS, MAKERS, NO_SHIFT, Cell, Cells
from benchmarks.tables import record, recorded
from tllib_ancon import adapt, methods
from tllib_ancon.self_training.method import one_hot

BOUND = "target labels"
"""Train on the labels of half of the target by the recipe of ``ancon-auto``, predict the other half, and vice versa."""
FOLD = {}
"""``"labels"``: class of each image of the target, -1 in the other half."""
LAST = {"criterion": "last"}
RULE, FLAGSHIP = {"method": "ancon-auto"}, {"method": "shot+ancon-auto"}
MIXED = {"method": "self-training", **LAST, "batch_norm": "mixed"}
ABLATION = {
    "self-training + mixed statistics": MIXED,
    "+ two views": {**MIXED, "views": 2},
    "+ fitted rate": {**MIXED, "views": 2, "step_change": 0.05},
    "+ votes": {**MIXED, "views": 2, "step_change": 0.05, "method": "ancon"},
    "ancon-auto, no information maximisation": {**RULE, "infomax_coefficient": 0.0},
    "ancon-auto, one view": {**RULE, "views": 1},
    "ancon-auto, fixed rate": {**RULE, "lr": 0.01},
    "ancon-auto, no votes": {**RULE, "weighting": "fixed", "fixed_threshold": 1.0},
}
"""Parts of ``ancon-auto``, added one after the other to self-training, or taken away from the whole."""
VARIANTS = {
    "self-training": {"method": "self-training", **LAST},
    "ancon": {"method": "ancon", **LAST},
    "shot": {"method": "shot", **LAST},
    "ancon-auto": RULE,
    "shot+ancon-auto": FLAGSHIP,
    "ancon-auto, true prior": RULE,
    "ancon-auto, uniform": {**RULE, "class_prior": "uniform"},
    "ancon-auto, s = 0": {**RULE, "prior_shrinkage": 0.0},
    "ancon-auto, target statistics": {**RULE, "batch_norm": "target"},
    "ancon-auto, s = 0.5": {**RULE, "prior_shrinkage": 0.5},
    "ancon-auto, half": {**RULE, "batch_norm": 0.5},
    "shot+ancon-auto, equal classes": {**FLAGSHIP, "class_prior": "uniform", "batch_norm": "target"},
    "adabn": {"method": "adabn", "epochs": 1},
    **ABLATION,
    **{name: {"method": name, **LAST} for name in ("tent", "eta", "elr", "gce", "nrc", "aad")},
    BOUND: {"method": "target-labels"},
}
TRUE_PRIOR = ", true prior"
CIFAR10_C = tuple(f"resnet20-{name}" for name in ("gaussian_noise-5", "contrast-5", "motion_blur-5", "none-0"))
OFFICE31 = (
    ("A-W", "equal"),
    ("A-D", "few"),
    ("D-A", "equal"),
    ("W-A", "long-tail"),
    ("D-W", "few"),
    ("A-none", "equal"),
)
FAMILY_CELLS = (
    *(Cell("office31", pair, kind) for pair, kind in OFFICE31),
    *(Cell("digits", pair, kind) for pair in ("mnist-usps", "usps-mnist", "mnist-mnist_m") for kind in KINDS),
    *(Cell("digits", "mnist-none", kind) for kind in ("equal", "few")),
    *(Cell("demo", "handwritten", kind) for kind in KINDS),
    *(Cell("demo", pair, "equal") for pair in (FULL_RATE, NO_SHIFT)),
    *(Cell("cifar10-c", pair, kind) for pair in CIFAR10_C for kind in KINDS),
)
UNSEEN = (
    *("shot_noise", "defocus_blur", "glass_blur", "snow"),
    *("fog", "brightness", "elastic_transform", "jpeg_compression"),
)
"""Corruptions that no choice was made on. Each network meets each of them once, at one severity, as one kind of target,
in turn."""
CELLS = {
    "runs": FAMILY_CELLS,
    "office31": tuple(
        Cell("office31", pair, "equal", seed)
        for seed in range(3)
        for pair in ("A-D", "A-W", "D-A", "D-W", "W-A", "W-D")
    ),
    EMOJI: tuple(Cell(EMOJI, f"{source}-{target}", "equal") for source in MAKERS for target in MAKERS),
    "networks": tuple(
        Cell("cifar10-c", f"resnet{depth}-{corruption}-{(3, 5)[(row + column) % 2]}", KINDS[(row + column) % 3])
        for row, depth in enumerate((20, 32, 44, 56))
        for column, corruption in enumerate(UNSEEN)
    ),
    **{
        f"corruptions{end}": tuple(Cell("cifar10-c", f"{network}-{name}-5", "equal") for name in CORRUPTIONS)
        for end, network in (("", "resnet20"), ("-resnet56", "resnet56"))
    },
}
COLUMNS = [*Cell._fields, "variant", "images", "start", "first", "last", "accuracies", "one_view", "seconds"]


def main(words=None):
    arguments = folders(__spec__.name, __doc__)
    arguments.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES)
    arguments.add_argument("--variants", nargs="+", choices=VARIANTS, default=[*VARIANTS], metavar="NAME")
    arguments.add_argument(
        "--cells",
        choices=CELLS,
        default="runs",
        help="the families', emoji, all corruptions, or other networks under corruptions that no choice was made on",
    )
    arguments.add_argument("--seed", type=int, default=0, help="of the families' cells and of emoji (default: 0)")
    arguments.add_argument("--images", type=int, default=800, help="most images of a cell (default: 800)")
    arguments.add_argument("--epochs", type=int, default=3, help="of an adaptation (default: 3)")
    arguments.add_argument("--side", type=int, default=96, help="pixels of Office-31's images (default: 96)")
    arguments.add_argument(
        "--source-epochs", type=int, default=15, help="of Office-31's source models, 40 steps each (default: 15)"
    )
    arguments.add_argument("--jobs", type=int, default=2, help="processes of one thread each (default: 2)")
    args = arguments.parse_args(words)
    file = args.out / f"{args.cells}.csv"
    args.out.mkdir(parents=True, exist_ok=True)
    made = recorded(file, COLUMNS[:5])
    opened = Cells(args.data, args.out, args.images, args.epochs, args.side, args.source_epochs)
    cells = [cell for cell in CELLS[args.cells] if cell.family in (*args.families, EMOJI)]
    if args.cells in ("runs", EMOJI):
        cells = [cell._replace(seed=args.seed) for cell in cells]
    for cell in {(cell.family, cell.pair.partition("-")[0], cell.seed): cell for cell in cells}.values():
        opened.task(cell)  # source models, one process at a time
    todo = [(cell, variant) for cell in cells for variant in args.variants if (*cell, variant) not in made]
    with ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(result, opened, cell, variant) for cell, variant in todo]):
            record(file, [done.result()], COLUMNS)


def result(opened, cell, variant):
    """Accuracies in percent: of the source model, after the first epoch, after the last, and of all epochs."""
    torch.set_num_threads(1)
    task, own = opened.task(cell), dict(VARIANTS[variant])
    if cell.family == "digits":
        own.pop("views", None)  # nothing augments these images, so that there is no second view
    if variant.endswith(TRUE_PRIOR):
        num_classes = 31 if cell.family == "office31" else 10
        own["class_prior"] = tuple(np.bincount(task.labels, minlength=num_classes) / len(task.labels))
    began = time.process_time()
    scores = two_folds if variant == BOUND else scored
    accuracies, one_view = scores(task, {**task.settings, **own})
    seconds = round(time.process_time() - began, 1)
    numbers = {"images": len(task.labels), "start": accuracies[0], "first": accuracies[1], "last": accuracies[-1]}
    numbers |= {"one_view": one_view, "seconds": seconds}
    return {**cell._asdict(), "variant": variant, **numbers, "accuracies": " ".join(map(str, accuracies))}


def scored(task, settings):
    """Accuracy of each epoch, and the last one by one view."""
    metrics = adapt(task.model, task.images, labels=task.labels.tolist(), **settings).metrics
    one_view = metrics[-1].get("accuracy_one_view", metrics[-1]["accuracy"])
    return [round(epoch["accuracy"], 2) for epoch in metrics], round(one_view, 2)


def two_folds(task, settings):
    """Accuracy of the source model, and of models that learned from the labels of the other half."""
    methods.register("target-labels")(TargetLabels)
    fold = np.random.default_rng(0).permutation(len(task.labels)) % 2
    right = np.zeros((2, len(task.labels)), bool)
    for half in range(2):
        FOLD["labels"] = torch.from_numpy(np.where(fold == half, -1, task.labels))
        comparison = adapt(task.model, task.images, **settings).certify(workers=0).comparison
        for row, predicted in enumerate((comparison.start, comparison.adapted)):
            right[row, fold == half] = (np.asarray(predicted) == task.labels)[fold == half]
    start, adapted = (round(100 * float(row.mean()), 2) for row in right)
    return [start, adapted], adapted


class TargetLabels(methods.Method):
    """Cross-entropy with the target's labels in FOLD, -1 for none: what an adaptation could reach at best."""

    training_defaults: ClassVar = methods.training_defaults("ancon-auto")

    def targets(self, visit):
        labels = FOLD["labels"][visit.indices.cpu()].to(visit.logits.device)
        return one_hot(labels.clamp(min=0), self.num_classes) * (labels >= 0)[:, None]

    def objective(self, visit, targets):
        return -(targets * visit.logits.float().log_softmax(1)).sum(1).mean()


if __name__ == "__main__":
    run(main)
