"""Differences between methods, from the lists of runs that are kept with the results, also of pairs that were adapted
with different settings: a difference is one between runs of the same pair, start and seed.

    python -m benchmarks.tables.beside RUNS.csv [RUNS.csv ...] [--study STUDY ...] [--to METHOD]

Prints the table that ``tllib-ancon report`` calls ``paired``, or every method beside METHOD; ``source-only`` is the
source model. ``tllib-ancon report`` (``runs.csv``) and ``python -m benchmarks.tables.digits.table --csv`` write such
lists. The one of this folder holds several studies.
"""

from collections import defaultdict
from pathlib import Path

import pandas as pd

from benchmarks import parser, run
from tllib_ancon.laboratory.finished_runs import PLACE, ROW
from tllib_ancon.laboratory.formats import rendered
from tllib_ancon.laboratory.paired import paired_table
from tllib_ancon.laboratory.tables import ACCURACY, measured
from tllib_ancon.runtime.errors import UserError


def main(words=None):
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("lists", type=Path, nargs="+", metavar="RUNS.csv")
    arguments.add_argument("--study", nargs="+", metavar="STUDY", help="of the lists; by default all rows")
    arguments.add_argument("--to", metavar="METHOD")
    args = arguments.parse_args(words)
    runs = read(args.lists, args.study)
    rows = measured(runs, ACCURACY).index.droplevel(PLACE).unique()
    table = paired_table(runs, args.to and to(args.to, rows))
    if table is None:
        raise UserError("no two runs have the same pair, seed and start: there is nothing to compare")
    print(rendered("table.md", table=table))


def to(reference, rows):
    """Every method beside this one, over all starts that have both."""
    rows = list(rows)
    comparisons = defaultdict(list)
    for start, method, _ in rows:
        if method != reference and (start, reference, "") in rows:
            comparisons[f"{method} − {reference}"].append(((start, method, ""), (start, reference, "")))
    if not comparisons:
        raise UserError(f"no run of {reference}; there are {', '.join(dict.fromkeys(key[1] for key in rows))}")
    return comparisons


def read(lists, studies=None):
    """The runs of all lists, or of some of their studies, as the frame that a report makes of run directories.

    Raises:
        UserError: two runs of one method, pair, start and seed
    """
    scores = ["start_accuracy", "start_ece", "accuracy", "ece"]
    runs = pd.concat([pd.read_csv(path, keep_default_na=False, na_values=[""]).assign(path=path) for path in lists])
    if studies is not None:
        runs = runs[runs.study.isin(studies)]
    runs = runs.reindex(columns=["path", "pair", "start", "method", "seed", *scores]).fillna({"start": "erm"})
    runs = runs.rename(columns={"pair": "column"}).assign(variant="", severity=0)
    for again in runs[runs.duplicated([*ROW, *PLACE])].itertuples():
        raise UserError(f"{again.path}: two runs of {again.method} on {again.column} with seed {again.seed}")
    return runs


if __name__ == "__main__":
    run(main)
