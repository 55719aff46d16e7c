"""The table of what ``run.sh`` made, beside the same models without adaptation.

    python -m benchmarks.toolkit.table OUT [--csv FILE]

OUT is the folder of ``run.sh``. ``--csv`` writes every run.
"""

import json
from pathlib import Path

import pandas as pd

from benchmarks import parser, run
from benchmarks.tables import markdown
from tllib_ancon.runtime.errors import UserError

COLUMNS = ["script", "pair", "seed", "method", "accuracy_before", "ece_before", "accuracy_after", "ece_after", "epoch"]


def main(words=None):
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("out", type=Path, metavar="OUT", help="folder that run.sh wrote to")
    arguments.add_argument("--csv", type=Path, metavar="FILE", help="write every run here")
    args = arguments.parse_args(words)
    rows = [row_of(path.parent) for path in sorted(args.out.glob("runs/*/*/result.json"))]
    if not rows:
        raise UserError(f"{args.out} holds no runs/SCRIPT-PAIR-seedN/METHOD; give the folder that run.sh wrote to")
    runs = pd.DataFrame(rows, columns=COLUMNS).round({"accuracy_before": 2, "accuracy_after": 2}).round(4)
    if args.csv:
        runs.to_csv(args.csv, index=False)
    print(table(runs), end="")


def row_of(folder):
    """Accuracy in % and ECE on the whole target, before the adaptation and of its selected epoch."""
    script, source, target, seed = folder.parent.name.split("-")
    result = json.loads((folder / "result.json").read_text())
    before, after = result["start"], result["selected"]
    scores = (before["accuracy"], before["ece"], after["accuracy"], after["ece"])
    pair = f"{source}-{target}"
    return (f"{script}.py", pair, int(seed.removeprefix("seed")), folder.name, *scores, result["selected_epoch"])


def table(runs):
    """A row for each script and pair, means over seeds: accuracy without adaptation, and after each method with the
    difference."""
    methods = runs.method.unique()
    runs = runs.assign(gain=runs.accuracy_after - runs.accuracy_before)
    rows = []
    for (script, pair), group in runs.groupby(["script", "pair"], sort=False):
        of_method = group.groupby("method").gain.mean().reindex(methods)
        start = group.accuracy_before.mean()
        cells = [f"{start + gain:.1f} ({gain:+.1f})".replace("-", "−") for gain in of_method]
        rows.append([f"`{script}`", pair.replace("-", " → "), f"{start:.1f}", *cells])
    return markdown(["script", "pair", "without adaptation", *methods], rows, numbers=True).replace("nan (+nan)", "–")


if __name__ == "__main__":
    run(main)
