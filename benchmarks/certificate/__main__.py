"""Simulate labellings and print the tables; or print the table of finished runs whose target has labels."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks import parser, run
from benchmarks.certificate import simulation
from benchmarks.certificate.simulation import Disagreements, labels_of
from benchmarks.tables import markdown
from tllib_ancon.certificate.model_pair import ModelPair
from tllib_ancon.config.certify import CertifyConfig
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.training.run import RunDirectory

HEADER = (
    *("run", "images", "disagreements", "decisive, %", "in favour, %", "true difference, points"),
    *("better, %", "worse, %", "labels", "labels at random images", "times fewer"),
)


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
