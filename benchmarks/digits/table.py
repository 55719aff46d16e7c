"""The table of what ``mnist_usps.sh`` left, beside SHOT's published numbers.

    python -m benchmarks.digits.table OUT [--csv FILE]

Prints Markdown: accuracy in percent on the target's test split, mean ± standard deviation over the seeds that are
there (their number where they differ). ``--csv`` writes every run.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev

from tllib_ancon.errors import UserError
from tllib_ancon.paper.numbers import other

PAIRS = ("MNIST-USPS", "USPS-MNIST")
METHODS = ("source-only", "shot", "self-training", "elr", "ancon", "ancon-auto", "nrc+ancon")
"""In this order; others after them."""
RUNS = re.compile(r"(?P<pair>\w+-\w+)-seed(?P<seed>\d+)")
Accuracies = dict[str, dict[str, dict[int, dict[str, float]]]]
"""method -> pair -> seed -> scores"""


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder that mnist_usps.sh wrote to")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write every run here")
    args = parser.parse_args(words)
    try:
        scores = read(args.out)
    except UserError as error:
        print(f"table: error: {error}", file=sys.stderr)
        return 2
    print(markdown(scores))
    if args.csv:
        write_csv(args.csv, scores)
    return 0


def read(out: Path) -> Accuracies:
    """Scores of every checkpoint that was evaluated.

    Raises:
        UserError: there is none
    """
    scores: Accuracies = defaultdict(lambda: defaultdict(dict))
    for path in sorted(out.glob("*/*.json")):
        run = RUNS.fullmatch(path.parent.name)
        if run:
            scores[path.stem][run["pair"]][int(run["seed"])] = json.loads(path.read_text())
    if not scores:
        raise UserError(f"{out} holds no PAIR-seedN/METHOD.json; give the folder that mnist_usps.sh wrote to")
    return {method: scores[method] for method in (*METHODS, *scores) if method in scores}


def markdown(scores: Accuracies) -> str:
    lines = ["| method | " + " | ".join(PAIRS) + " |", "|---|" + "---:|" * len(PAIRS)]
    for method, by_pair in scores.items():
        lines.append(f"| {method} | " + " | ".join(_cell(by_pair.get(pair, {})) for pair in PAIRS) + " |")
    for row in other("digits"):
        if not row.seed:
            cells = (f"{row.values[pair]:.1f}" if pair in row.values else "–" for pair in PAIRS)
            lines.append(f"| {row.method}, published by SHOT | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(by_seed: dict[int, dict[str, float]]) -> str:
    accuracies = [scores["accuracy"] for scores in by_seed.values()]
    if len(accuracies) < 2:
        return f"{accuracies[0]:.2f} (1 seed)" if accuracies else "–"
    return f"{fmean(accuracies):.2f} ± {stdev(accuracies):.2f} ({len(accuracies)} seeds)"


def write_csv(path: Path, scores: Accuracies) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("pair", "method", "seed", "accuracy", "ece"))
        for pair in PAIRS:
            for method, by_pair in scores.items():
                for seed, run in sorted(by_pair.get(pair, {}).items()):
                    writer.writerow((pair, method, seed, f"{run['accuracy']:.2f}", f"{run['ece']:.4f}"))


if __name__ == "__main__":
    sys.exit(main())
