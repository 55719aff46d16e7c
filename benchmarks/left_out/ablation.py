"""What each part of ``ancon-auto`` contributes, as two Markdown tables of the runs of :mod:`benchmarks.left_out.grid`.

    python -m benchmarks.left_out.ablation RUNS.csv

The first table has the accuracy of each family. The second has the paired difference to the row that it names, the
fraction of the gap between the source model and the upper bound that is closed, processor time, and harm.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from benchmarks import parser, run
from benchmarks.left_out.grid import BOUND
from benchmarks.left_out.table import CELL, HARM, REFERENCE
from benchmarks.tables import markdown

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


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("runs", type=Path, metavar="RUNS.csv")
    runs = pd.read_csv(arguments.parse_args(words).runs)
    print(accuracies(runs), parts(runs), sep="\n", end="")


def accuracies(runs: pd.DataFrame) -> str:
    """Mean accuracy in percent of each family and of all families."""
    rows = []
    for name, accuracy in {"source model": _source(runs), **_columns(runs)}.items():
        means = accuracy.groupby("family", sort=False).mean()
        rows.append((name, *(f"{mean:.1f}" for mean in means), f"{means.mean():.1f}"))
    return markdown(["", *runs.family.unique(), "mean"], rows, numbers=True)


def parts(runs: pd.DataFrame) -> str:
    """Difference over pairs, closed gap, processor time relative to self-training, and harm."""
    found, source, seconds = _columns(runs), _source(runs), runs.groupby("variant").seconds.sum()
    gap, rows = _mean(found[BOUND_ROW] - source), []
    for name, (variant, column, reference) in ROWS.items():
        beside = "" if reference is None else _over_pairs(found[name] - found[reference])
        own = source if column == "one_view" else _of(runs, variant, "start")
        below, closed = [found[name] - start for start in (source, own)], 100 * _mean(found[name] - source) / gap
        cost = "" if variant == BOUND else f"{seconds[variant] / seconds[REFERENCE]:.2f}"
        harm = [f"{int((one < -HARM).sum())}, {one.min():+.1f}" for one in below]
        rows.append((name, beside, f"{closed:.0f} %", cost, *harm))
    starts = [f"more than {HARM} below the source model with {views}, worst" for views in ("one view", "as many views")]
    header = ["", "difference", "gap closed", "processor time", *starts]
    return markdown(header, rows, numbers=True)


def _of(runs: pd.DataFrame, variant: str, column: str) -> pd.Series:
    return runs[runs.variant == variant].set_index(CELL)[column]


def _source(runs: pd.DataFrame) -> pd.Series:
    """Accuracy of the source model by one view."""
    return _of(runs, REFERENCE, "start")


def _columns(runs: pd.DataFrame) -> dict[str, pd.Series]:
    return {name: _of(runs, variant, column) for name, (variant, column, _) in ROWS.items()}


def _mean(values: pd.Series) -> float:
    """Families count equally."""
    return float(values.groupby("family").mean().mean())


def _over_pairs(differences: pd.Series) -> str:
    pairs = differences.groupby(["family", "pair"]).mean()
    return f"{pairs.mean():+.1f} ± {pairs.sem():.1f}"


if __name__ == "__main__":
    run(main)
