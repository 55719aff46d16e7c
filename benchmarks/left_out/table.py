"""Tables of the runs of :mod:`benchmarks.left_out.grid`, as Markdown.

    python -m benchmarks.left_out.table RUNS.csv [--choose VARIANT … | --pairs] [--beside shot] [--only "kind == 'few'"]
    python -m benchmarks.left_out.table RUNS.csv --pairs --race RACE.csv

The first has a row a variant: the mean accuracy in percent of each family and of all, the paired difference to
self-training, or to what ``--beside`` names, with its standard error over pairs of domains (or corruptions), and how
many cells end more than 1.5 points below their start, with the worst. The second leaves one family out at a time: of
the variants to choose from the best on the other three, which count equally, and what it has on the one that was left
out. With ``--pairs`` instead one table: the mean over pairs with its standard error, and the worst pair; ``--race``
adds what other packages have in :mod:`benchmarks.race` under the fifteen corruptions.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import parser, run
from benchmarks.race.works import CIFAR10_C
from benchmarks.tables import markdown, with_error
from tllib_ancon.runtime.errors import UserError

CELL = ["family", "pair", "kind", "seed"]
HARM = 1.5
"""Points below the start that count as harm."""
REFERENCE = "self-training"
CANDIDATES = (
    "ancon-auto",
    "ancon-auto, uniform",
    "ancon-auto, s = 0",
    "ancon-auto, target statistics",
    "ancon-auto, s = 0.5",
    "ancon-auto, half",
)


def main(words=None):
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("runs", type=Path, metavar="RUNS.csv")
    arguments.add_argument("--choose", nargs="+", default=CANDIDATES, metavar="VARIANT")
    arguments.add_argument("--beside", default=REFERENCE, metavar="VARIANT", help=f"default: {REFERENCE}")
    arguments.add_argument("--only", default="", metavar="QUERY", help="of the list's columns, as pandas reads it")
    arguments.add_argument("--pairs", action="store_true", help="mean and worst over pairs or corruptions instead")
    arguments.add_argument("--race", type=Path, metavar="RACE.csv", help="rows of benchmarks.race, for --pairs")
    args = arguments.parse_args(words)
    runs = pd.concat([pd.read_csv(args.runs), *([of_race(args.race)] if args.race else [])])
    runs = runs.query(args.only) if args.only else runs
    if args.beside not in set(runs.variant):
        raise UserError(f"no runs of {args.beside!r}; the list has {', '.join(runs.variant.unique())}")
    if args.pairs:
        print(over_pairs(runs, args.beside), end="")
        return
    print(markdown_of(runs, args.beside))
    if args.only:
        return
    print(markdown_of_chosen(runs, args.choose), end="")


def markdown_of(runs, reference=REFERENCE, unit=("family", "pair")):
    """Of the cells that every variant has; standard errors count what ``unit`` tells apart."""
    runs = complete(runs)
    means = with_starts(runs).pivot_table("last", "variant", "family", sort=False)
    pairs = runs.pivot_table("last", "variant", [*unit])
    rows = []
    for variant, accuracies in means.iterrows():
        own = runs[runs.variant == variant]
        gains = own["last"] - own.start
        below = f"{(gains < -HARM).sum()} of {len(own)}, {gains.min():+.1f}" if len(own) else ""
        beside = "" if variant in (reference, "start") else with_error(pairs.loc[variant] - pairs.loc[reference], "+")
        rows.append([variant, *(f"{mean:.1f}" for mean in (*accuracies, accuracies.mean())), beside, below])
    header = ["", *means, "mean", f"− {reference}", f"more than {HARM} below the start, worst"]
    return markdown(header, rows)


def markdown_of_chosen(runs, candidates=CANDIDATES):
    chosen = left_out(runs, candidates)
    return markdown(["left out", *chosen], chosen.itertuples(name=None))


def over_pairs(runs, reference=REFERENCE):
    """Of the pairs that every variant has."""
    pairs = with_starts(complete(runs)).pivot_table("last", "variant", "pair", sort=False)
    rows = []
    for variant, own in pairs.iterrows():
        beside = "" if variant == reference else with_error(own - pairs.loc[reference], "+")
        rows.append((variant, with_error(own), beside, f"{own.min():.1f} ({own.idxmin()})"))
    return markdown(["", f"mean of {len(pairs.columns)}", f"− {reference}", "worst"], rows)


def of_race(file):
    """What other packages have of the race's fifteen corruptions, as runs of the grid."""
    others = [entry.title for entry in CIFAR10_C if entry.place]
    rows = pd.read_csv(file).dropna(subset="accuracy_after")
    rows = rows[(rows.work == "cifar10-c-fifteen") & rows.title.isin(others)]
    names = {"title": "variant", "accuracy_before": "start", "accuracy_after": "last"}
    cells = {"family": "cifar10-c", "pair": "resnet20-" + rows.case + "-5", "kind": "equal"}
    return rows.rename(columns=names).assign(**cells)[[*CELL, *names.values()]]


def left_out(runs, candidates):
    """By family what is chosen on the others, its accuracy there, and that of each candidate."""
    if runs.family.nunique() < 2 or not runs.variant.isin(candidates).any():
        raise UserError("runs of one family, or of no variant to choose from; make more, or name others with --choose")
    means = complete(runs[runs.variant.isin(candidates)]).pivot_table("last", "variant", "family", sort=False)
    others = {family: means.drop(columns=family).mean(axis=1) for family in means}
    best = pd.DataFrame(others).idxmax()
    accuracies = [means.loc[variant, family] for family, variant in best.items()]
    return means.T.round(1).assign(chosen=best, accuracy=np.round(accuracies, 1))[["chosen", "accuracy", *means.index]]


def with_starts(runs):
    """The source model of each cell as one more variant, the first."""
    starts = runs.drop_duplicates(CELL).assign(variant="start", last=lambda rows: rows.start)
    return pd.concat([starts, runs])


def complete(runs):
    """The runs of cells that every variant has."""
    return runs[runs.groupby(CELL).variant.transform("nunique") == runs.variant.nunique()]


if __name__ == "__main__":
    run(main)
