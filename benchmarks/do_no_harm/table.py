"""The tables of what ``run.sh`` left: which epoch each choice takes, and how far below its start a run ends.

    python -m benchmarks.do_no_harm.table RUNS ... [--methods METHOD ...] [--csv FILE]

Prints Markdown: the accuracy (in percent, labels used for nothing else) of InfoMax's epoch by setting and method; by
method and choice of the epoch its mean over the settings and the worst difference to the start; and by method the last
epoch minus InfoMax's, with its standard error over the runs. ``--csv`` writes every setting, seed, method and choice.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from tllib_ancon.errors import UserError
from tllib_ancon.selection import CRITERIA, best_epoch

RUN = re.compile(r"(?P<method>.+)-seed(?P<seed>\d+)")
USUAL = "infomax(1..)"
"""What ``adapt`` does: the start does not compete."""

SOURCES = "source"
"""Folder of what is no adaptation."""

Metrics = Sequence[Mapping[str, Any]]
"""A line an epoch, the start first."""


@dataclass(frozen=True)
class Run:
    """One adaptation: pair of domains, seed, method and what was measured each epoch."""

    setting: str
    seed: int
    method: str
    metrics: Metrics

    @property
    def start(self) -> float:
        return float(self.metrics[0]["accuracy"])

    def accuracy(self, choice: str) -> float:
        return float(self.metrics[CHOICES[choice](self.metrics)]["accuracy"])


def _by(criterion: str, first: int) -> Callable[[Metrics], int]:
    """The epoch from ``first`` on that a label-free criterion takes."""
    return lambda metrics: first + best_epoch([line[criterion] for line in metrics[first:]], criterion)


CHOICES: dict[str, Callable[[Metrics], int]] = {
    "start": lambda metrics: 0,
    "last": lambda metrics: len(metrics) - 1,
    "best(labels)": lambda metrics: max(range(len(metrics)), key=lambda epoch: metrics[epoch]["accuracy"]),
    **{f"{name}(1..)": _by(name, 1) for name in CRITERIA},
    **{f"{name}(0..)": _by(name, 0) for name in CRITERIA},
}
"""Name -> the index of the epoch. (0..): the start competes with the adapted epochs."""


def choices(runs: Sequence[Run]) -> list[str]:
    """Those that the metrics of all runs allow: a run of an earlier version has fewer criteria."""
    scored = set.intersection(*(set(line) for run in runs for line in run.metrics))
    return [name for name in CHOICES if (criterion := name.partition("(")[0]) in scored or criterion not in CRITERIA]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.do_no_harm.table",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help="folders that run.sh wrote to")
    parser.add_argument("--methods", nargs="+", metavar="METHOD", help="folders of a method's runs; by default all")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write every choice here")
    args = parser.parse_args(words)
    try:
        runs = [run for folder in args.runs for run in read(folder)]
        runs = [run for run in runs if args.methods is None or run.method in args.methods]
        if not runs:
            raise UserError(f"no run is of {' or '.join(args.methods)}")
    except UserError as error:
        print(f"table: error: {error}", file=sys.stderr)
        return 2
    print(by_setting(runs))
    print()
    print(by_choice(runs))
    print()
    print(last_or_infomax(runs))
    if args.csv:
        write_csv(args.csv, runs)
    return 0


def read(folder: Path) -> list[Run]:
    """Finished adaptations: ``SETTING/METHOD-seedN`` anywhere below the folder.

    Raises:
        UserError: there is none
    """
    runs = []
    for path in sorted(folder.rglob("result.json")):
        name, setting = RUN.fullmatch(path.parent.name), path.parts[-3]
        if name and setting != SOURCES:
            lines = (path.parent / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            runs.append(Run(setting, int(name["seed"]), name["method"], [json.loads(line) for line in lines]))
    if not runs:
        raise UserError(f"{folder} holds no finished adaptation; give a folder that run.sh wrote to")
    return runs


def by_setting(runs: Sequence[Run]) -> str:
    """A row a setting and seed: the start, and each method's accuracy at InfoMax's epoch."""
    methods = list(dict.fromkeys(run.method for run in runs))
    settings = {(run.setting, run.seed): run.start for run in runs}
    chosen = {(run.setting, run.seed, run.method): run.accuracy(USUAL) for run in runs}
    lines = [f"| setting | seed | start | {' | '.join(methods)} |", "|---" * (3 + len(methods)) + "|"]
    for (setting, seed), start in settings.items():
        cells = [_cell(chosen.get((setting, seed, method))) for method in methods]
        lines.append(f"| {setting} | {seed} | {start:.1f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def by_choice(runs: Sequence[Run]) -> str:
    """A row a choice of the epoch: each method's mean, and its worst difference to the start."""
    methods = list(dict.fromkeys(run.method for run in runs))
    head = " | ".join(f"{method}: mean | worst" for method in methods)
    lines = [f"| choice | {head} |", "|---" * (1 + 2 * len(methods)) + "|"]
    for choice in choices(runs):
        cells = []
        for method in methods:
            own = [run for run in runs if run.method == method]
            accuracies = [run.accuracy(choice) for run in own]
            worst = min(accuracy - run.start for accuracy, run in zip(accuracies, own, strict=True))
            cells += [f"{fmean(accuracies):.2f}", f"{worst:+.1f}"]
        lines.append(f"| {choice} | {' | '.join(cells)} |")
    return "\n".join(lines)


def last_or_infomax(runs: Sequence[Run]) -> str:
    """A row a method, and one for all: the last epoch's accuracy minus that of InfoMax's, and what each risks."""
    methods = list(dict.fromkeys(run.method for run in runs))
    groups = {method: [run for run in runs if run.method == method] for method in methods}
    if len(methods) > 1:
        groups["all"] = list(runs)
    lines = [
        "| method | runs | last − InfoMax's | above, below | worst − start: last | InfoMax's |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, own in groups.items():
        gains = [run.accuracy("last") - run.accuracy(USUAL) for run in own]
        error = f" ± {stdev(gains) / sqrt(len(gains)):.2f}" if len(gains) > 1 else ""
        counts = f"{sum(gain > 0 for gain in gains)}, {sum(gain < 0 for gain in gains)}"
        worst = (f"{min(run.accuracy(choice) - run.start for run in own):+.1f}" for choice in ("last", USUAL))
        lines.append(f"| {name} | {len(own)} | {fmean(gains):+.2f}{error} | {counts} | {' | '.join(worst)} |")
    return "\n".join(lines)


def write_csv(path: Path, runs: Sequence[Run]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("setting", "seed", "training", "choice", "epoch", "accuracy", "start"))
        for run in runs:
            for name in choices(runs):
                row = (run.setting, run.seed, run.method, name, CHOICES[name](run.metrics))
                writer.writerow((*row, f"{run.accuracy(name):.2f}", f"{run.start:.2f}"))


def _cell(accuracy: float | None) -> str:
    return "–" if accuracy is None else f"{accuracy:.1f}"


if __name__ == "__main__":
    sys.exit(main())
