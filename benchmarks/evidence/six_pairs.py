"""Differences between methods over pairs that were adapted with different settings, as Office-31's six with five epochs
and, to Amazon, with two.

    python -m benchmarks.evidence.six_pairs RUNS [RUNS ...]

Runs of different settings make no one table of means, so that ``tllib-ancon report`` refuses them; but a difference is
one between runs of the same pair, seed and start, and within a pair all settings are checked to be the same.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tllib_ancon.errors import UserError
from tllib_ancon.report.formats import to_markdown
from tllib_ancon.report.paired import paired_table
from tllib_ancon.report.runs import AdaptedRun, read_runs, refuse_mixed_settings
from tllib_ancon.report.tables import Table


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUNS", help="folder of finished runs")
    args = parser.parse_args(words)
    try:
        runs, notes = read_runs(args.runs)
        table = over_pairs(runs)
    except UserError as error:
        print(f"six_pairs: error: {error}", file=sys.stderr)
        return 2
    print("\n".join([*notes, to_markdown(table)]))
    return 0


def over_pairs(runs: Sequence[AdaptedRun]) -> Table:
    """The paired table of runs whose settings are the same within each pair.

    Raises:
        UserError: settings differ within a pair, or fewer than two runs share pair and seed
    """
    for pair in dict.fromkeys(run.column for run in runs):
        refuse_mixed_settings([run for run in runs if run.column == pair], [])
    table = paired_table(runs, [])
    if table is None:
        raise UserError("fewer than two runs share pair, seed and start: there is nothing to compare")
    return table


if __name__ == "__main__":
    raise SystemExit(main())
