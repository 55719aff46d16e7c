"""Every method beside one of them, run by run, from the lists of runs that are kept with the results.

    python -m benchmarks.evidence.beside METHOD RUNS.csv [RUNS.csv ...]

METHOD is one of the lists, or ``source-only``, the start. The lists are those that ``tllib-ancon report``
(``runs.csv``) and ``python -m benchmarks.digits.table --csv`` write. A row has the mean accuracy of all runs of a
method, its mean difference to METHOD with the standard error over runs of the same pair, start and seed, how many of
them are above and below, and the smallest difference.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev

START = "source-only"

Runs = dict[str, dict[tuple[str, str, str], float]]
"""Method -> pair, start and seed -> accuracy in %."""


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", metavar="METHOD")
    parser.add_argument("lists", type=Path, nargs="+", metavar="RUNS.csv")
    args = parser.parse_args(words)
    runs = read(args.lists)
    if args.method not in runs:
        print(f"beside: error: no run of {args.method}; there are {', '.join(runs)}", file=sys.stderr)
        return 2
    print("\n".join(rows(runs, args.method)))
    return 0


def read(lists: Sequence[Path]) -> Runs:
    runs: Runs = {}
    for path in lists:
        with open(path, newline="", encoding="utf-8") as file:
            for line in csv.DictReader(file):
                run = (line["pair"], line.get("start", ""), line["seed"])
                runs.setdefault(line["method"], {})[run] = float(line["accuracy"])
                if "start_accuracy" in line:
                    runs.setdefault(START, {})[run] = float(line["start_accuracy"])
    return runs


def rows(runs: Runs, method: str) -> Iterable[str]:
    yield f"| | accuracy | − {method} | above, below | least |"
    yield "|---|---:|---:|---:|---:|"
    for name, accuracies in runs.items():
        differences = [accuracies[run] - runs[method][run] for run in accuracies.keys() & runs[method].keys()]
        if name == method or len(differences) < 2:
            continue
        error = stdev(differences) / len(differences) ** 0.5
        above, below = sum(value > 0 for value in differences), sum(value < 0 for value in differences)
        yield (
            f"| {name} | {fmean(accuracies.values()):.2f} | {fmean(differences):+.2f} ± {error:.2f} | {above}, {below} "
            f"| {min(differences):+.2f} |"
        )


if __name__ == "__main__":
    raise SystemExit(main())
