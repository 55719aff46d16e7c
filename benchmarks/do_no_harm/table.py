"""The tables of what ``run.sh`` left: which epoch each choice takes, and how far below its start a run ends.

    python -m benchmarks.do_no_harm.table RUNS ... [--methods METHOD ...] [--csv FILE]

Prints Markdown: the accuracy (in percent, labels used for nothing else) of InfoMax's epoch by setting and method; by
method and choice of the epoch its mean over the settings and the worst difference to the start; and by method the last
epoch minus InfoMax's, with its standard error over the runs. ``--csv`` writes every setting, seed, method and choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from benchmarks.do_no_harm import parser, run
from benchmarks.tables import markdown
from tllib_ancon.errors import UserError
from tllib_ancon.selection import CRITERIA

RUN = re.compile(r"(?P<method>.+)-seed(?P<seed>\d+)")
USUAL = "infomax(1..)"
"""What ``adapt`` does: the start does not compete. (0..): it does."""

SOURCES = "source"
"""Folder of what is no adaptation."""


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help="folders that run.sh wrote to")
    arguments.add_argument("--methods", nargs="+", metavar="METHOD", help="folders of a method's runs; by default all")
    arguments.add_argument("--csv", type=Path, metavar="FILE", help="write every choice here")
    args = arguments.parse_args(words)
    taken = pd.concat([read(folder) for folder in args.runs])
    if args.methods:
        taken = taken[taken.training.isin(args.methods)]
    if taken.empty:
        raise UserError(f"no run is of {' or '.join(args.methods)}")
    print("\n".join((by_setting(taken), by_choice(taken), last_or_infomax(taken))), end="")
    if args.csv:
        taken.to_csv(args.csv, index=False, float_format="%.2f")


def read(folder: Path) -> pd.DataFrame:
    """Of every finished adaptation ``SETTING/METHOD-seedN`` below the folder a row for each choice of its epoch.

    Raises:
        UserError: there is none
    """
    rows = []
    for path in sorted(folder.rglob("result.json")):
        name, setting = RUN.fullmatch(path.parent.name), path.parts[-3]
        if name and setting != SOURCES:
            metrics = pd.read_json(path.parent / "metrics.jsonl", lines=True)
            accuracies = metrics.accuracy.astype(float)
            named = (setting, int(name["seed"]), name["method"])
            rows += [(*named, choice, epoch, accuracies[epoch], accuracies[0]) for choice, epoch in choices(metrics)]
    if not rows:
        raise UserError(f"{folder} holds no finished adaptation; give a folder that run.sh wrote to")
    return pd.DataFrame(rows, columns=["setting", "seed", "training", "choice", "epoch", "accuracy", "start"])


def choices(metrics: pd.DataFrame) -> Iterator[tuple[str, int]]:
    """Each choice and its epoch, from the metrics of all epochs, the start first."""
    yield from (("start", 0), ("last", len(metrics) - 1), ("best(labels)", int(metrics.accuracy.idxmax())))
    for first in (1, 0):
        for name, criterion in CRITERIA.items():
            if name in metrics and metrics[name][first:].notna().any():
                scores = metrics[name][first:]
                yield f"{name}({first}..)", int(scores.idxmax() if criterion.higher_is_better else scores.idxmin())


def by_setting(taken: pd.DataFrame) -> str:
    """A row for each setting and seed: the start, and each method's accuracy at InfoMax's epoch."""
    usual = taken[taken.choice == USUAL]
    cells = usual.pivot_table("accuracy", ["setting", "seed"], "training", sort=False)
    starts = usual.groupby(["setting", "seed"], sort=False).start.first()
    rows = [
        (*key, f"{starts[key]:.1f}", *("–" if pd.isna(cell) else f"{cell:.1f}" for cell in row))
        for key, row in zip(cells.index, cells.to_numpy(), strict=True)
    ]
    return markdown(["setting", "seed", "start", *cells.columns], rows)


def by_choice(taken: pd.DataFrame) -> str:
    """A row for each choice that all runs allow: each method's mean, and its worst difference to the start."""
    everywhere = taken.groupby("choice", sort=False).filter(lambda own: len(own) == len(taken[taken.choice == "start"]))
    gains = everywhere.assign(gain=everywhere.accuracy - everywhere.start)
    found = gains.groupby(["choice", "training"], sort=False).agg(mean=("accuracy", "mean"), worst=("gain", "min"))
    methods = list(dict.fromkeys(taken.training))
    rows = [
        (choice, *(text for method in methods for text in _mean_and_worst(found.loc[choice, method])))
        for choice in dict.fromkeys(everywhere.choice)
    ]
    return markdown(["choice", *(f"{method}: {part}" for method in methods for part in ("mean", "worst"))], rows)


def _mean_and_worst(found: pd.Series) -> tuple[str, str]:
    return f"{found['mean']:.2f}", f"{found.worst:+.1f}"


def last_or_infomax(taken: pd.DataFrame) -> str:
    """A row for each method, and one for all: the last epoch's accuracy minus InfoMax's, and what each risks."""
    accuracies = taken.pivot(index=["setting", "seed", "training", "start"], columns="choice", values="accuracy")
    runs = accuracies[["last", USUAL]].reset_index()
    groups = {method: runs[runs.training == method] for method in dict.fromkeys(taken.training)}
    rows = []
    for name, own in {**groups, **({"all": runs} if len(groups) > 1 else {})}.items():
        gains = own["last"] - own[USUAL]
        error = f" ± {gains.sem():.2f}" if len(gains) > 1 else ""
        counts = f"{(gains > 0).sum()}, {(gains < 0).sum()}"
        worst = (f"{(own[choice] - own.start).min():+.1f}" for choice in ("last", USUAL))
        rows.append((name, len(own), f"{gains.mean():+.2f}{error}", counts, *worst))
    header = ("method", "runs", "last − InfoMax's", "above, below", "worst − start: last", "InfoMax's")
    return markdown(header, rows, numbers=True)


if __name__ == "__main__":
    run(main)
