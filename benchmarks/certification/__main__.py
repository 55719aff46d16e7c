"""Simulate labellings and write the tables; or show the table of finished runs whose target has labels."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks import parser, run
from benchmarks.certification import simulation
from benchmarks.certification.simulation import DELTA, Disagreements, labels_of
from benchmarks.tables import markdown
from tllib_ancon.certificate.run import ModelPair
from tllib_ancon.config.certify import CertifyConfig
from tllib_ancon.runtime.errors import UserError
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


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser("benchmarks.certification", __doc__)
    arguments.add_argument(
        "--streams", type=int, default=2000, help="random orders a row; by default 2000, as in the tables"
    )
    arguments.add_argument("--seed", type=int, default=0, help="of the orders; by default 0, as in the tables")
    arguments.add_argument("--runs", type=Path, nargs="+", metavar="FOLDER", help="of finished adaptations")
    arguments.add_argument(
        "--out", type=Path, metavar="FILE", default=None,
        help="by default the committed table of simulations; that of runs is then only shown",
    )  # fmt: skip
    args = arguments.parse_args(words)
    if args.runs:
        rows = rows_of_runs(args.runs, args.streams, np.random.default_rng(args.seed))
        text = RUNS.format(orders=args.streams, seed=args.seed, delta=DELTA) + markdown(HEADER, rows)
    else:
        text = simulation.page(args.streams, args.seed)
    if args.out or not args.runs:
        (args.out or TABLE).write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    run(main)
