"""Table of the points of :mod:`benchmarks.assess.points`, as Markdown: error and left-out coverage of each estimate.

    python -m benchmarks.assess.table ASSESS.csv

The families are Office-31, digits, the demo and CIFAR-10-C with their source models, and adapted, collapsed and
untrained networks. An estimate's interval is chosen on all families but one and judged on that one. It reaches from the
lowest of the other families' 5 % quantiles of accuracy minus estimate to the highest of their 95 % quantiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from benchmarks import parser, run
from benchmarks.assess.points import CHANGES, ESTIMATES
from benchmarks.left_out.families import FAMILIES
from benchmarks.tables import markdown

TAILS = (0.05, 0.95)
JUDGED = (*FAMILIES, *CHANGES, "untrained")


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("points", type=Path, metavar="ASSESS.csv")
    points = pd.read_csv(arguments.parse_args(words).points)
    points["family"] = points.grid.where(points.grid.isin(JUDGED), points.family)
    rows = [
        (f"{family} ({(points.family == family).sum()})", *(cell(points, family, name) for name in ESTIMATES))
        for family in JUDGED
    ]
    ends = ("{:+.1f} to {:+.1f}".format(*(100 * end for end in errors(points, name))) for name in ESTIMATES)
    print(markdown(["left out", *ESTIMATES], [*rows, ("none", *ends)]))


def cell(points: pd.DataFrame, family: str, estimate: str) -> str:
    """Mean absolute error, and how often the other families' interval holds; both in percent."""
    left_out = points[points.family == family]
    difference = left_out.accuracy - left_out[estimate]
    inside = difference.between(*errors(points[points.family != family], estimate)).mean()
    return f"{100 * difference.abs().mean():.1f}; {100 * inside:.0f}"


def errors(points: pd.DataFrame, estimate: str) -> tuple[float, float]:
    """The lowest and the highest of the families' quantiles of accuracy minus estimate."""
    differences = (points.accuracy - points[estimate]).groupby(points.family)
    return float(differences.quantile(TAILS[0]).min()), float(differences.quantile(TAILS[1]).max())


if __name__ == "__main__":
    run(main)
