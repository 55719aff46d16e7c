"""Simulate labellings and print the tables; or print the table of finished runs whose target has labels."""

from pathlib import Path

import numpy as np

from benchmarks import parser, run
from benchmarks.certificate import simulation
from benchmarks.certificate.simulation import Disagreements
from benchmarks.tables import markdown
from tllib_ancon.certificate.model_pair import ModelPair
from tllib_ancon.config.certify import CertifyConfig
from tllib_ancon.runs.directory import RunDirectory
from tllib_ancon.runtime.errors import UserError

HEADER = [
    "run", "images", "disagreements", "decisive, %", "in favour, %", "true difference, points", "better, %", "worse, %",
    "labels", "labels at random images", "times fewer",
]  # fmt: skip


def rows_of_runs(folders, orders, generator):
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
        outcomes = outcomes[np.not_equal(start, adapted)]
        if not len(outcomes):
            continue
        disagreements = Disagreements(len(start), outcomes)
        ends, *labels = disagreements.beside_random_images(orders, generator)
        decisive = np.abs(outcomes).sum(dtype=int)
        yield [
            path.relative_to(folder),
            f"{len(start):,}",
            f"{len(outcomes):,}",
            f"{100 * decisive / len(outcomes):.0f}",
            f"{100 * (outcomes == 1).sum() / max(decisive, 1):.0f}",
            f"{100 * disagreements.difference:+.1f}",
            *(f"{100 * (ends.verdicts == verdict).mean():.1f}" for verdict in (1, -1)),
            *labels,
        ]


def main(words=None):
    arguments = parser("benchmarks.certificate", __doc__)
    arguments.add_argument(
        "--streams", type=int, default=2000, help="random orders a row; by default 2000, as in the tables"
    )
    arguments.add_argument("--seed", type=int, default=0, help="of the orders; by default 0, as in the tables")
    arguments.add_argument("--runs", type=Path, nargs="+", metavar="FOLDER", help="of finished adaptations")
    args = arguments.parse_args(words)
    if args.runs:
        rows = rows_of_runs(args.runs, args.streams, np.random.default_rng(args.seed))
        print(markdown(HEADER, rows), end="")
    else:
        print(simulation.page(args.streams, args.seed), end="")


if __name__ == "__main__":
    run(main)
