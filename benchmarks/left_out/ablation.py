"""What each part of ``ancon-auto`` contributes, as two Markdown tables of the runs of :mod:`benchmarks.left_out.grid`.

    python -m benchmarks.left_out.ablation RUNS.csv

The first table has the accuracy of each family. The second has the paired difference to the row that it names, the
fraction of the gap between the source model and the upper bound that is closed, processor time, and harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from benchmarks import parser, run
from benchmarks.left_out.grid import BOUND
from benchmarks.left_out.table import CELL, HARM
from benchmarks.tables import markdown

WHOLE = "ancon-auto"
ROWS = {
    "self-training": ("self-training", "one_view", None),
    "+ mixed statistics": ("self-training + mixed statistics", "one_view", "self-training"),
    "+ two views in training": ("+ two views", "one_view", "+ mixed statistics"),
    "+ fitted rate": ("+ fitted rate", "one_view", "+ two views in training"),
    "+ votes": ("+ votes", "one_view", "+ fitted rate"),
    "+ class weights": (WHOLE, "one_view", "+ votes"),
    "+ two views in prediction: `ancon-auto`": (WHOLE, "last", "+ class weights"),
    "`ancon-auto` without mixed statistics": ("ancon-auto, target statistics", "last", WHOLE),
    "`ancon-auto` without two views": ("ancon-auto, one view", "last", WHOLE),
    "`ancon-auto` without fitted rate": ("ancon-auto, fixed rate", "last", WHOLE),
    "`ancon-auto` without votes": ("ancon-auto, no votes", "last", WHOLE),
    "`ancon-auto` without class weights": ("+ votes", "last", WHOLE),
    "upper bound: the target's labels, two folds": (BOUND, "last", WHOLE),
}
"""Row -> variant of the grid, column of its accuracy, and the row that it is compared with."""
WHOLE_ROW = "+ two views in prediction: `ancon-auto`"


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("runs", type=Path, metavar="RUNS.csv")
    runs = pd.read_csv(arguments.parse_args(words).runs)
    print(accuracies(runs), parts(runs), sep="\n", end="")


def accuracies(runs: pd.DataFrame) -> str:
    """Mean accuracy in percent of each family and of all families."""
    found = {"source model": runs.drop_duplicates(CELL).set_index(CELL)["start"], **_columns(runs)}
    rows = []
    for name, accuracy in found.items():
        means = accuracy.groupby("family", sort=False).mean()
        rows.append((name, *(f"{mean:.1f}" for mean in means), f"{means.mean():.1f}"))
    return markdown(["", *runs.family.unique(), "mean"], rows)


def parts(runs: pd.DataFrame) -> str:
    """Difference over pairs, closed gap, processor time relative to self-training, and harm."""
    found, seconds = _columns(runs), runs.groupby("variant").seconds.sum()
    start = runs.drop_duplicates(CELL).set_index(CELL)["start"]
    gap = _mean(found[[*ROWS][-1]] - start)
    rows = []
    for name, (variant, _, reference) in ROWS.items():
        own, beside = found[name], "" if reference is None else found[WHOLE_ROW if reference == WHOLE else reference]
        difference = "" if reference is None else _over_pairs(own - beside)
        below = own - start
        closed, cost = _mean(below) / gap, seconds[variant] / seconds["self-training"]
        harm = f"{int((below < -HARM).sum())} of {len(below)}, {below.min():+.1f}"
        rows.append((name, difference, f"{closed:.0%}".replace("%", " %"), f"{cost:.2f}", harm))
    header = ["", "difference to the row above, or to `ancon-auto`", "gap closed", "processor time", "harm, worst"]
    return markdown(header, rows)


def _columns(runs: pd.DataFrame) -> dict[str, pd.Series]:
    return {name: runs[runs.variant == variant].set_index(CELL)[column] for name, (variant, column, _) in ROWS.items()}


def _mean(values: pd.Series) -> float:
    """Families count equally."""
    return float(values.groupby("family").mean().mean())


def _over_pairs(differences: pd.Series) -> str:
    pairs = differences.groupby(["family", "pair"]).mean()
    return f"{pairs.mean():+.1f} ± {pairs.sem():.1f}"


if __name__ == "__main__":
    run(main)
