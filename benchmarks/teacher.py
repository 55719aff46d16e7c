"""What a second opinion adds: models adapted with a teacher and without one. One row of CSV a target.

    python -m benchmarks.teacher DATA OUT [--families …] [--weights chosen 1]
    python -m benchmarks.teacher DATA OUT --table

CIFAR-10-C has ResNet-20 and ResNet-56 at severity 5; Office-31 has MobileNetV2 at 96 pixels, trained briefly on each
domain; digits have small networks of MNIST and MNIST-M on USPS. Each pair comes in both orders, so that one of the two
has the worse teacher. DATA and OUT are those of :mod:`benchmarks.left_out.grid`; the same command continues what was
interrupted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks import folders, run
from benchmarks.cifar10_c.corruptions import CORRUPTIONS
from benchmarks.cifar10_c.networks import SHOWN, load
from benchmarks.left_out.families import OFFICE31, Cell, Cells
from benchmarks.tables import markdown, record, recorded
from tllib_ancon import adapt, predict
from tllib_ancon.data.open import open_domain

FAMILIES = ("cifar10-c", "office31", "digits")
CHOSEN = "chosen"
REVERSED = ("gaussian_noise", "defocus_blur", "frost", "jpeg_compression")
"""Corruptions on which ResNet-20 teaches ResNet-56 as well, one of each kind."""
MOST_IMAGES = {"cifar10-c": 300, "office31": 300, "digits": 1000}
EPOCHS = 3


class Pair(NamedTuple):
    """A model to adapt, its teacher and a target."""

    family: str
    student: str
    teacher: str
    target: str
    seed: int = 0


@dataclass(frozen=True)
class Models:
    """Both source models of a pair, the images of its target with their labels, and settings of these images."""

    student: nn.Module | str
    teacher: nn.Module | str
    images: Any
    labels: NDArray[np.int64]
    shown: Mapping[str, Any]
    batch_size: int


COLUMNS = [
    *("family", "student_model", "teacher_model", "target", "seed", "weight", "images"),
    *("student", "teacher", "student_statistics", "teacher_statistics", "average"),
    *("alone", "with_teacher", "chosen_weight"),
]


def main(words=None):
    arguments = folders(__spec__.name, __doc__)
    arguments.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES)
    arguments.add_argument("--weights", nargs="+", default=[CHOSEN], help="chosen, or numbers (default: chosen)")
    arguments.add_argument("--table", action="store_true", help="print the tables of OUT/teacher.csv")
    args = arguments.parse_args(words)
    file = args.out / "teacher.csv"
    if args.table:
        print(tables(pd.read_csv(file, dtype={"weight": str})), end="")
        return
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    cells = Cells(args.data, args.out, epochs=EPOCHS)
    rows_in_file = {tuple(map(str, row)) for row in recorded(file, COLUMNS[:6])}
    for pair in pairs(args.families):
        weights = [weight for weight in args.weights if (*map(str, pair), weight) not in rows_in_file]
        if weights:
            record(file, results(pair, models_of(cells, pair), weights), COLUMNS)


def pairs(families):
    if "digits" in families:
        for seed in range(3):
            yield Pair("digits", "mnist", "mnist_m", "usps", seed)
            yield Pair("digits", "mnist_m", "mnist", "usps", seed)
    if "office31" in families:
        for first, second, target in (("A", "D", "W"), ("A", "W", "D"), ("D", "W", "A")):
            yield Pair("office31", first, second, target)
            yield Pair("office31", second, first, target)
    if "cifar10-c" in families:
        for corruption in CORRUPTIONS:
            yield Pair("cifar10-c", "resnet20", "resnet56", corruption)
        for corruption in REVERSED:
            yield Pair("cifar10-c", "resnet56", "resnet20", corruption)


def models_of(cells, pair):
    if pair.family == "cifar10-c":
        return _cifar10_c(cells, pair)
    if pair.family == "office31":
        return _office31(cells, pair)
    return _digits(cells, pair)


def _cifar10_c(cells, pair):
    few = Cells(cells.data, cells.out, MOST_IMAGES[pair.family])
    task = few.task(Cell(pair.family, f"{pair.student}-{pair.target}-5", "equal", pair.seed))
    assert isinstance(task.model, nn.Module)
    teacher = load(next((cells.data / "cifar10").glob(f"{pair.teacher}-*.th")))
    return Models(task.model, teacher, task.images, task.labels, SHOWN, 64)


def _office31(cells, pair):
    root = cells.data / "office31"
    weights = str(cells.data / "mobilenetv2_100_imagenet.safetensors")
    brief = {**OFFICE31, "data": "Office31", "pretrained_weights": weights, "epochs": 5}
    runs = [cells.trained(f"brief-{code}", 0, root, **brief, source=(code,)) for code in (pair.student, pair.teacher)]
    domain = open_domain(str(root), "Office31", [pair.target])
    return _of_domain(pair, runs, domain, 32)


def _digits(cells, pair):
    runs = [cells.trained_on_digits(name, 0) for name in (pair.student, pair.teacher)]
    return _of_domain(pair, runs, open_domain(str(cells.digits_folder()), "ImageList", ["usps_test"]), 64)


def _of_domain(pair, runs, domain, batch_size):
    """The models of two runs, and some images of a domain."""
    order = np.random.default_rng(0).permutation(len(domain))
    part = domain.subset(np.sort(order[: MOST_IMAGES[pair.family]]))
    return Models(runs[0], runs[1], part, part.labels, {}, batch_size)


def results(pair, models, weights):
    """A row for each weight. Accuracies are in percent, of two views where images are mirrored."""
    common = {"quiet": True, "threads": 1, "workers": 0, "batch_size": models.batch_size, **models.shown}
    of_two_views = {**common, "views": 1 if pair.family == "digits" else 2}
    probabilities = {}
    for role, model in (("student", models.student), ("teacher", models.teacher)):
        probabilities[role] = predict(model, models.images, **of_two_views).probabilities
        by_statistics = adapt(model, models.images, method="adabn", **common).model
        probabilities[f"{role}_statistics"] = predict(by_statistics, models.images, **of_two_views).probabilities
    probabilities["average"] = probabilities["student_statistics"] + probabilities["teacher_statistics"]
    row: dict[str, Any] = dict(zip(COLUMNS, pair, strict=False))
    row["images"] = len(models.labels)
    for name, predicted in probabilities.items():
        row[name] = round(100 * float((predicted.argmax(1) == models.labels).mean()), 2)
    settings = {**common, "method": "ancon-auto", "epochs": EPOCHS, "seed": pair.seed, "labels": models.labels.tolist()}
    row["alone"] = round(adapt(models.student, models.images, **settings).metrics[-1]["accuracy"], 2)
    rows = []
    for weight in weights:
        given = None if weight == CHOSEN else float(weight)
        metrics = adapt(models.student, models.images, teacher=models.teacher, teacher_weight=given, **settings).metrics
        row_of_weight = {
            "weight": weight,
            "with_teacher": round(metrics[-1]["accuracy"], 2),
            "chosen_weight": round(metrics[1]["teacher_weight"], 4),
        }
        rows.append({**row, **row_of_weight})
    return rows


def tables(rows):
    """Means over the targets of each student and teacher, and the targets with a worse teacher one by one."""
    parts = []
    header = ("student ← teacher", "student", "teacher", "average", "alone", "with teacher", "difference")
    for weight, group in rows.groupby("weight", sort=False):
        lines = []
        for names, targets in group.groupby(["family", "student_model", "teacher_model"], sort=False):
            lines.append(_mean_line(names, targets))
        parts.append(f"Weight: {weight}.\n\n{markdown(header, lines, numbers=True)}")
    worse = rows[rows["teacher_statistics"] < rows["student_statistics"]]
    parts.append(f"Worse teachers.\n\n{markdown(header, map(_line, worse.itertuples()), numbers=True)}")
    return "\n".join(parts)


def _mean_line(names, targets):
    family, student, teacher = names
    columns = ("student_statistics", "teacher_statistics", "average", "alone", "with_teacher")
    differences = targets["with_teacher"] - targets["alone"]
    difference = f"{differences.mean():+.1f}"
    if len(targets) > 1:
        difference += f" ± {differences.sem():.1f}"
    means = [f"{targets[column].mean():.1f}" for column in columns]
    return [f"{family}: {student} ← {teacher} ({len(targets)})", *means, difference]


def _line(row):
    values = (row.student_statistics, row.teacher_statistics, row.average, row.alone, row.with_teacher)
    name = f"{row.student_model} ← {row.teacher_model}, {row.target}, w = {row.chosen_weight:.2f}"
    return [name, *(f"{value:.1f}" for value in values), f"{row.with_teacher - row.alone:+.1f}"]


if __name__ == "__main__":
    run(main)
