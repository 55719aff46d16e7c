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

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from benchmarks import parser, run
from benchmarks.race.works import CIFAR10_C
from benchmarks.tables import markdown
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


def main(words: Sequence[str] | None = None) -> None:
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


def markdown_of(runs: pd.DataFrame, reference: str = REFERENCE, unit: Sequence[str] = ("family", "pair")) -> str:
    """Of the cells that every variant has; standard errors count what ``unit`` tells apart."""
    runs = complete(runs)
    families, means = list(runs.family.unique()), runs.pivot_table("last", "variant", "family", sort=False)
    pairs = runs.pivot_table("last", "variant", [*unit])
    starts = runs.drop_duplicates(CELL).groupby("family", sort=False).start.mean()
    rows = [("start", *(f"{starts[family]:.1f}" for family in families), f"{starts.mean():.1f}", "", "")]
    for variant in means.index:
        own = runs[runs.variant == variant]
        harm, differences = own["last"] - own.start, pairs.loc[variant] - pairs.loc[reference]
        beside = "" if variant == reference else f"{differences.mean():+.1f} ± {differences.sem():.1f}"
        numbers = [f"{means.loc[variant, family]:.1f}" for family in families]
        below = f"{int((harm < -HARM).sum())} of {len(own)}, {harm.min():+.1f}"
        rows.append((variant, *numbers, f"{means.loc[variant].mean():.1f}", beside, below))
    header = ["", *families, "mean", f"− {reference}", f"more than {HARM} below the start, worst"]
    return markdown(header, rows)


def markdown_of_chosen(runs: pd.DataFrame, candidates: Sequence[str] = CANDIDATES) -> str:
    chosen = left_out(runs, candidates)
    rows = [(family, *map(str, row)) for family, row in zip(chosen.index, chosen.values.tolist(), strict=True)]
    return markdown(["left out", *chosen.columns], rows)


def over_pairs(runs: pd.DataFrame, reference: str = REFERENCE) -> str:
    """Of the pairs that every variant has."""
    runs = complete(runs)
    starts = runs.drop_duplicates(CELL).assign(variant="start", last=lambda rows: rows.start)
    pairs = pd.concat([starts, runs]).pivot_table("last", "variant", "pair", sort=False)
    rows = []
    for variant, own in pairs.iterrows():
        differences = own - pairs.loc[reference]
        beside = "" if variant == reference else f"{differences.mean():+.1f} ± {differences.sem():.1f}"
        rows.append((variant, f"{own.mean():.1f} ± {own.sem():.1f}", beside, f"{own.min():.1f} ({own.idxmin()})"))
    return markdown(["", f"mean of {len(pairs.columns)}", f"− {reference}", "worst"], rows)


def of_race(file: Path) -> pd.DataFrame:
    """What other packages have of the race's fifteen corruptions, as runs of the grid."""
    others = [entry.title for entry in CIFAR10_C if entry.place]
    rows = pd.read_csv(file).dropna(subset="accuracy_after")
    rows = rows[(rows.work == "cifar10-c-fifteen") & rows.title.isin(others)]
    names = {"title": "variant", "accuracy_before": "start", "accuracy_after": "last"}
    cells = {"family": "cifar10-c", "pair": "resnet20-" + rows.case + "-5", "kind": "equal"}
    return rows.rename(columns=names).assign(**cells)[[*CELL, *names.values()]]


def left_out(runs: pd.DataFrame, candidates: Sequence[str]) -> pd.DataFrame:
    """By family what is chosen on the others, its accuracy there, and that of each candidate."""
    if runs.family.nunique() < 2 or not runs.variant.isin(candidates).any():
        raise UserError("runs of one family, or of no variant to choose from; make more, or name others with --choose")
    means = complete(runs[runs.variant.isin(candidates)]).pivot_table("last", "variant", "family", sort=False)
    chosen = {family: means.drop(columns=family).mean(axis=1).idxmax() for family in means}
    rows = {
        family: {"chosen": best, "accuracy": round(means.loc[best, family], 1), **means[family].round(1)}
        for family, best in chosen.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def complete(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of cells that every variant has."""
    return runs[runs.groupby(CELL).variant.transform("nunique") == runs.variant.nunique()]


if __name__ == "__main__":
    run(main)
