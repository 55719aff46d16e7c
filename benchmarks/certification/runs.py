"""What the certificate would have said of finished runs whose target has labels, beside the truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.certification.simulation import DELTA, Disagreements, labels_of, table
from tllib_ancon.certify.adapted_run import AdaptedRun, find_adapted_run
from tllib_ancon.config import CertifyConfig
from tllib_ancon.errors import UserError
from tllib_ancon.training.run_directory import RunDirectory

HEADER = [
    *("run", "images", "disagreements", "decisive, %", "in favour, %", "true difference, points"),
    *("better, %", "worse, %", "labels", "labels at random images", "times fewer"),
]


def page(folders: Sequence[Path], orders: int, seed: int) -> str:
    """A row for each adaptation below the folders, each from random orders of its disagreements."""
    generator = np.random.default_rng(seed)
    return "\n".join(
        [
            "# The certificate on finished runs",
            "",
            f"`python -m benchmarks.certification --runs ... --streams {orders} --seed {seed}`, δ = {DELTA}:",
            f"{orders:,} random orders of each run's disagreements.",
            "The true difference is that of the accuracies on all images.",
            "Labels are median / 90th percentile until the verdict. `runs.sh` makes the runs of the committed table.",
            "",
            *table(HEADER, (row(name, found, orders, generator) for name, found in disagreements(folders))),
            "",
        ]
    )


def disagreements(folders: Sequence[Path]) -> Iterator[tuple[str, Disagreements]]:
    """Name and disagreements of each finished adaptation below the folders whose two models are not equal.

    Raises:
        UserError: none is there, or one cannot be read
    """
    found = [(folder, path) for folder in folders for path in sorted(folder.rglob("config.json")) if _is_adapted(path)]
    if not found:
        raise UserError(f"no finished adaptation below {', '.join(map(str, folders))}")
    for folder, path in found:
        run = find_adapted_run(CertifyConfig(run=str(path.parent), quiet=True))
        outcomes = _outcomes(run)
        if outcomes is not None:
            yield str(path.parent.relative_to(folder)), outcomes


def row(name: str, found: Disagreements, orders: int, generator: np.random.Generator) -> Sequence[str]:
    ends, at_random = found.label(orders, generator), found.label_random_images(orders, generator)
    decisive, right = int(np.abs(found.outcomes).sum()), int((found.outcomes == 1).sum())
    ratio = float(np.median(at_random.labels)) / float(np.median(ends.labels))
    return [
        name,
        f"{found.images:,}",
        f"{len(found):,}",
        f"{100 * decisive / len(found):.0f}",
        f"{100 * right / max(decisive, 1):.0f}",
        f"{100 * found.difference:+.1f}",
        f"{100 * (ends.verdicts == 1).mean():.1f}",
        f"{100 * (ends.verdicts == -1).mean():.1f}",
        labels_of(ends),
        labels_of(at_random),
        f"{ratio:.1f}",
    ]


def _is_adapted(config: Path) -> bool:
    directory = RunDirectory(config.parent)
    return directory.finished and directory.config().get("command") == "adapt"


def _outcomes(run: AdaptedRun) -> Disagreements | None:
    """None if both models say the same of all images."""
    labels = run.images.labels
    if labels is None:
        raise UserError(f"the images of {run.directory.path} have no labels to compare with")
    start, adapted = run.classes()
    outcomes = np.equal(labels, adapted).astype(np.int8) - np.equal(labels, start).astype(np.int8)
    differ = np.not_equal(start, adapted)
    return Disagreements(len(labels), outcomes[differ]) if differ.any() else None
