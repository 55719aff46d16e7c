"""What each part of ``ancon-auto`` contributes, as two Markdown tables of the runs of :mod:`benchmarks.left_out.grid`.

    python -m benchmarks.left_out.ablation RUNS.csv

The first table has the accuracy of each family. The second has the paired difference to the row that it names, the
fraction of the gap between the source model and the upper bound that is closed, processor time, and harm.
"""

from pathlib import Path

import pandas as pd

from benchmarks import parser, run
from benchmarks.left_out.grid import BOUND
from benchmarks.left_out.table import CELL, HARM, REFERENCE
from benchmarks.tables import markdown, with_error

WHOLE = "ancon-auto"
WHOLE_ROW = "+ two views in prediction: `ancon-auto`"
BOUND_ROW = "upper bound: labels of the target, two folds"
ROWS = {
    "self-training": ("self-training", "one_view", None),
    "+ mixed statistics": ("self-training + mixed statistics", "one_view", "self-training"),
    "+ two views in training": ("+ two views", "one_view", "+ mixed statistics"),
    "+ fitted rate": ("+ fitted rate", "one_view", "+ two views in training"),
    "+ votes": ("+ votes", "one_view", "+ fitted rate"),
    "+ class weights": (WHOLE, "one_view", "+ votes"),
    WHOLE_ROW: (WHOLE, "last", "+ class weights"),
    "`ancon-auto` without mixed statistics": ("ancon-auto, target statistics", "last", WHOLE_ROW),
    "`ancon-auto` without two views": ("ancon-auto, one view", "last", WHOLE_ROW),
    "`ancon-auto` without fitted rate": ("ancon-auto, fixed rate", "last", WHOLE_ROW),
    "`ancon-auto` without votes": ("ancon-auto, no votes", "last", WHOLE_ROW),
    "`ancon-auto` without class weights": ("+ votes", "last", WHOLE_ROW),
    BOUND_ROW: (BOUND, "last", WHOLE_ROW),
}
"""Row -> variant of the grid, column of its accuracy, and the row that it is compared with."""


def main(words=None):
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("runs", type=Path, metavar="RUNS.csv")
    runs = pd.read_csv(arguments.parse_args(words).runs)
    print(accuracies(runs), parts(runs), sep="\n", end="")


def accuracies(runs):
    """Mean accuracy in percent of each family and of all families."""
    rows = []
    for name, accuracy in {"source model": _source(runs), **_columns(runs)}.items():
        means = accuracy.groupby("family", sort=False).mean()
        rows.append((name, *(f"{mean:.1f}" for mean in means), f"{means.mean():.1f}"))
    return markdown(["", *runs.family.unique(), "mean"], rows, numbers=True)


def parts(runs):
    """Difference over pairs, closed gap, processor time relative to self-training, and harm."""
    columns = _columns(runs)
    source = _source(runs)
    seconds = runs.groupby("variant").seconds.sum() / runs[runs.variant == REFERENCE].seconds.sum()
    gap = _mean(columns[BOUND_ROW] - source)
    rows = []
    for name, (variant, column, reference) in ROWS.items():
        beside = ""
        if reference:
            differences = columns[name] - columns[reference]
            beside = with_error(differences.groupby(["family", "pair"]).mean(), "+")
        start = source if column == "one_view" else _of(runs, variant, "start")
        closed = f"{100 * _mean(columns[name] - source) / gap:.0f} %"
        cost = "" if variant == BOUND else f"{seconds[variant]:.2f}"
        rows.append([name, beside, closed, cost, _harm(columns[name] - source), _harm(columns[name] - start)])
    starts = [f"more than {HARM} below the source model with {views}, worst" for views in ("one view", "as many views")]
    header = ["", "difference", "gap closed", "processor time", *starts]
    return markdown(header, rows, numbers=True)


def _harm(gains):
    return f"{(gains < -HARM).sum()}, {gains.min():+.1f}"


def _of(runs, variant, column):
    return runs[runs.variant == variant].set_index(CELL)[column]


def _source(runs):
    """Accuracy of the source model by one view."""
    return _of(runs, REFERENCE, "start")


def _columns(runs):
    return {name: _of(runs, variant, column) for name, (variant, column, _) in ROWS.items()}


def _mean(values):
    """Families count equally."""
    return float(values.groupby("family").mean().mean())


if __name__ == "__main__":
    run(main)
