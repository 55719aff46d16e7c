"""Simulate labellings and write the tables; or show the table of finished runs whose target has labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks import parser, run
from benchmarks.certification import simulation
from benchmarks.certification.simulation import DELTA, Disagreements, labels_of
from benchmarks.tables import markdown
from tllib_ancon.certifying.run import ModelPair
from tllib_ancon.config import CertifyConfig
from tllib_ancon.errors import UserError
from tllib_ancon.training.run import RunDirectory

TABLE = Path(__file__).parents[1] / "results" / "certification.md"
HEADER = (
    *("run", "images", "disagreements", "decisive, %", "in favour, %", "true difference, points"),
    *("better, %", "worse, %", "labels", "labels at random images", "times fewer"),
)
RUNS = """# The certificate on finished runs

`python -m benchmarks.certification --runs ... --streams {orders} --seed {seed}`, δ = {delta}:
{orders:,} random orders of each run's disagreements.
The true difference is that of the accuracies on all images.
Labels are median / 90th percentile until the verdict. `runs.sh` makes the runs of the committed table.

"""
SIDES_HEADER = (
    *("absolute difference, points", "runs", "labels, both"),
    *("labels, better", "saved, %", "above 48, better, %"),
)
SIDES = """# Labels for one question and for two

`python -m benchmarks.certification --sides {table} --streams {orders} --seed {seed}`, δ = 0.05: the populations of that
table again. Labels are the median over the runs of each run's median over {orders:,} random orders, `--side both` and
`--side better`; saved is the median over the runs.

"""


def rows_of_runs(folders: Sequence[Path], orders: int, generator: np.random.Generator) -> Iterator[list[object]]:
    """What the certificate would have said of each finished adaptation whose models differ, beside the truth."""
    below = [(folder, RunDirectory(file.parent)) for folder in folders for file in sorted(folder.rglob("config.json"))]
    runs = [(folder, run.path) for folder, run in below if run.finished and run.config().get("command") == "adapt"]
    if not runs:
        raise UserError(f"no finished adaptation below {', '.join(map(str, folders))}")
    for folder, path in runs:
        pair = ModelPair(CertifyConfig(run=str(path), quiet=True))
        if pair.images.labels is None:
            raise UserError(f"the images of {path} have no labels to compare with")
        start, adapted = pair.classes()
        outcomes = np.equal(pair.images.labels, adapted).astype(np.int8) - np.equal(pair.images.labels, start)
        differ = np.not_equal(start, adapted)
        if not differ.any():
            continue
        found = Disagreements(len(differ), outcomes[differ])
        ends, at_random = found.label(orders, generator), found.label_random_images(orders, generator)
        decisive = int(np.abs(found.outcomes).sum())
        yield [
            str(path.relative_to(folder)),
            f"{found.images:,}",
            f"{len(found.outcomes):,}",
            f"{100 * decisive / len(found.outcomes):.0f}",
            f"{100 * int((found.outcomes == 1).sum()) / max(decisive, 1):.0f}",
            f"{100 * found.difference:+.1f}",
            *(f"{100 * (ends.verdicts == verdict).mean():.1f}" for verdict in (1, -1)),
            labels_of(ends),
            labels_of(at_random),
            f"{np.median(at_random.labels) / np.median(ends.labels):.1f}",
        ]


def runs_of_table(file: Path) -> list[Disagreements]:
    """The populations of a table of runs, from its columns images, disagreements, decisive and true difference."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip().replace(",", "") for cell in line.strip("|").split("|")]
        if len(cells) == len(HEADER) and cells[1].isdigit():
            images, total = int(cells[1]), int(cells[2])
            decisive, gain = round(int(cells[3]) / 100 * total), round(float(cells[5]) / 100 * images)
            right = min(max(round((decisive + gain) / 2), 0), decisive)
            counts = [right, decisive - right, total - decisive]
            found.append(Disagreements(images, np.repeat(np.array([1, -1, 0], dtype=np.int8), counts)))
    return found


def rows_of_sides(runs: Sequence[Disagreements], orders: int, generator: np.random.Generator) -> Iterator[list[object]]:
    """Rows: absolute difference in points, runs, the median of their median labels with side "both" and "better", the
    share saved, and the runs whose median exceeds 48 labels with "better"."""
    medians = []
    for found in runs:
        ends = (found.label(orders, generator, side=side) for side in ("both", "better"))
        medians.append([float(np.median(end.labels)) for end in ends])
    both, better = np.array(medians).T
    points = np.abs([100 * run.difference for run in runs])
    for least, most in ((0, 1), (1, 2), (2, 5), (5, 10), (10, 100), (0, 100)):
        kept = (points >= least) & (points < most)
        if not kept.any():
            continue
        saved = 100 * np.median(1 - better[kept] / both[kept])
        middle = (f"{np.median(labels[kept]):.0f}" for labels in (both, better))
        many = f"{100 * (better[kept] > 48).mean():.0f}"
        yield [f"{least} to {most}" if most < 100 or least else "all", kept.sum(), *middle, f"{saved:.0f}", many]


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser("benchmarks.certification", __doc__)
    arguments.add_argument(
        "--streams", type=int, default=2000, help="random orders a row; by default 2000, as in the tables"
    )
    arguments.add_argument("--seed", type=int, default=0, help="of the orders; by default 0, as in the tables")
    arguments.add_argument("--runs", type=Path, nargs="+", metavar="FOLDER", help="of finished adaptations")
    arguments.add_argument("--sides", type=Path, metavar="FILE", help="the table of runs to compare the two sides on")
    arguments.add_argument(
        "--out", type=Path, metavar="FILE", default=None,
        help="by default the committed table of simulations; that of runs is then only shown",
    )  # fmt: skip
    args = arguments.parse_args(words)
    if args.runs:
        rows = rows_of_runs(args.runs, args.streams, np.random.default_rng(args.seed))
        text = RUNS.format(orders=args.streams, seed=args.seed, delta=DELTA) + markdown(HEADER, rows)
    elif args.sides:
        rows = rows_of_sides(runs_of_table(args.sides), args.streams, np.random.default_rng(args.seed))
        text = SIDES.format(table=args.sides, orders=args.streams, seed=args.seed) + markdown(SIDES_HEADER, rows)
    else:
        text = simulation.page(args.streams, args.seed)
    if args.out or not (args.runs or args.sides):
        (args.out or TABLE).write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    run(main)
