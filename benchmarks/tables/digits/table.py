"""The table of what ``mnist_usps.sh`` left, beside SHOT's published numbers.

    python -m benchmarks.tables.digits.table OUT [--csv FILE]

Prints Markdown: accuracy in percent on the target's test split, mean ± standard deviation over the seeds that are
there (their number where they differ). ``--csv`` writes every run.
"""

import json
from pathlib import Path

import pandas as pd

from benchmarks import parser, run
from benchmarks.tables import markdown
from tllib_ancon.laboratory.published import other
from tllib_ancon.runtime.errors import UserError

PAIRS = ("MNIST-USPS", "USPS-MNIST")
METHODS = ("source-only", "shot", "self-training", "elr", "ancon", "ancon-auto", "nrc+ancon")
"""In this order; others after them."""


def main(words=None):
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("out", type=Path, metavar="OUT", help="folder that mnist_usps.sh wrote to")
    arguments.add_argument("--csv", type=Path, metavar="FILE", help="write every run here")
    args = arguments.parse_args(words)
    runs = read(args.out)
    if runs.empty:
        raise UserError(f"{args.out} holds no PAIR-seedN/METHOD.json; give the folder that mnist_usps.sh wrote to")
    print(table(runs), end="")
    if args.csv:
        runs.round({"accuracy": 2, "ece": 4}).to_csv(args.csv, index=False)


def read(out):
    """Scores of every checkpoint that was evaluated."""
    rows = []
    for path in sorted(out.glob("*-seed*/*.json")):
        pair, _, seed = path.parent.name.rpartition("-seed")
        scores = json.loads(path.read_text())
        row = {"pair": pair, "method": path.stem, "seed": int(seed)}
        rows.append(row | {name: scores[name] for name in ("accuracy", "ece")})
    return pd.DataFrame(rows)


def table(runs):
    cells = runs.groupby(["method", "pair"]).accuracy.agg(_cell).unstack()
    methods = dict.fromkeys([*METHODS, *cells.index])
    cells = cells.reindex(index=[method for method in methods if method in cells.index], columns=PAIRS)
    rows = cells.fillna("–").reset_index().to_numpy().tolist()
    for row in other("digits"):
        if not row.seed:
            published = (f"{row.values[pair]:.1f}" if pair in row.values else "–" for pair in PAIRS)
            rows.append([f"{row.method}, published by SHOT", *published])
    return markdown(("method", *PAIRS), rows, numbers=True)


def _cell(accuracies):
    if len(accuracies) < 2:
        return f"{accuracies.iloc[0]:.2f} (1 seed)"
    return f"{accuracies.mean():.2f} ± {accuracies.std():.2f} ({len(accuracies)} seeds)"


if __name__ == "__main__":
    run(main)
