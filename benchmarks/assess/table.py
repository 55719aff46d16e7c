"""Tables of the points of :mod:`benchmarks.assess.points`, as Markdown: errors, coverage, and what the advice does.

    python -m benchmarks.assess.table ASSESS.csv [LEFT_OUT.csv …]

How far the accuracy may lie from an estimate is chosen on three families and judged on the fourth: over the families
that choose, the lowest of their 5 % quantiles of accuracy minus estimate, and the highest of their 95 % quantiles. So
are the advice's two shares, multiples of 0.05: the largest below which no run was harmed, and the smallest from which
on none gained more than that much, where a run of ``ancon-auto`` is harmed that ends more than 1.5 points below its
start. Families count equally. The last row of each table is chosen on all: it is what the package has.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import parser, run
from benchmarks.assess.points import ESTIMATES
from benchmarks.left_out.families import FAMILIES
from benchmarks.left_out.table import CELL, HARM
from benchmarks.tables import markdown

TAILS = (0.05, 0.95)
STEP = 0.05
RULE = "ancon-auto"


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("points", type=Path, metavar="ASSESS.csv")
    arguments.add_argument("runs", type=Path, nargs="*", metavar="LEFT_OUT.csv")
    args = arguments.parse_args(words)
    points = pd.read_csv(args.points)
    print(coverage(points[points.grid != "adapted"]))
    if args.runs:
        runs = pd.concat(map(pd.read_csv, args.runs))
        runs = runs[runs.variant == RULE].drop_duplicates(CELL)
        print(advice(points[points.grid == "adapted"].merge(runs[[*CELL, "start", "last"]], on=CELL)))


def errors(points: pd.DataFrame, estimate: str) -> tuple[float, float]:
    """The lowest and the highest of the families' quantiles of accuracy minus estimate."""
    differences = (points.accuracy - points[estimate]).groupby(points.family)
    return float(differences.quantile(TAILS[0]).min()), float(differences.quantile(TAILS[1]).max())


def coverage(points: pd.DataFrame) -> str:
    """By estimate and family that was left out: the mean error without its sign, and how often the others' interval
    holds; all in percent."""
    rows = []
    for estimate in ESTIMATES:
        cells = []
        for family in FAMILIES:
            own, others = points[points.family == family], points[points.family != family]
            difference, (low, high) = own.accuracy - own[estimate], errors(others, estimate)
            inside = difference.between(low, high).mean()
            cells.append(f"{100 * difference.abs().mean():.1f}; {100 * inside:.0f}")
        low, high = errors(points, estimate)
        rows.append((estimate, *cells, f"{100 * low:+.1f} to {100 * high:+.1f}"))
    counts = points.family.value_counts()
    return markdown(["", *(f"{family} ({counts[family]})" for family in FAMILIES), "all choose"], rows)


def shares(runs: pd.DataFrame) -> tuple[float, float]:
    """Below which agreement one adapts, and from which on one does not."""
    gain, steps = runs["last"] - runs.start, np.arange(0, 1 + STEP / 2, STEP).round(2)
    high = min(share for share in [*steps, 1.05] if not (gain[runs.agreement >= share] > HARM).any())
    low = max(share for share in steps if not (gain[runs.agreement < share] < -HARM).any())
    return min(low, high), high


def advice(runs: pd.DataFrame) -> str:
    rows = []
    for family in (*FAMILIES, "all"):
        own = runs if family == "all" else runs[runs.family == family]
        low, high = shares(runs if family == "all" else runs[runs.family != family])
        gain, adapts, not_ = own["last"] - own.start, own.agreement < low, own.agreement >= high
        harmed, missed = (gain[adapts] < -HARM).sum(), (gain[not_] > HARM).sum()
        rows.append((
            family, f"{low:.2f}, {high:.2f}", f"{adapts.sum()}: {harmed} harmed, {gain[adapts].mean():+.1f}",
            f"{not_.sum()}: {missed} would have gained, {gain[not_].mean():+.1f}",
            f"{(~adapts & ~not_).sum()}: {gain[~adapts & ~not_].mean():+.1f}",
            f"{(gain < -HARM).sum()} of {len(own)}, {gain.mean():+.1f}",
        ))  # fmt: skip
    header = ["judged on", "shares", "adapt", "do not adapt", "cannot tell", "if always adapted"]
    return markdown(header, rows)


if __name__ == "__main__":
    run(main)
