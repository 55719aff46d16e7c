"""How far estimates of the class prior are from the truth, on logits that runs have stored; nothing is trained.

    python -m benchmarks.do_no_harm.estimates RUNS [--draws 5]

RUNS is what ``benchmarks/evidence/run.sh`` made. Of the start's logits on each target, parts are drawn whose classes
are balanced, long-tailed and few (as in :mod:`benchmarks.do_no_harm.classes`). Prints Markdown: by estimate and kind,
half the sum of absolute differences between estimated and true shares, 0 to 1, as a mean over draws and pairs; pairs
whose start is right on at least three quarters of the images are apart. Labels make the parts and the truth.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.do_no_harm.classes import drawn, likely, of_equal_classes
from tllib_ancon.errors import UserError
from tllib_ancon.self_training.class_prior import estimate_class_prior, likeliest_class_prior
from tllib_ancon.training.saved_logits import read_logits

KINDS = ("balanced", "long-tail", "few-classes")
GOOD = 0.75
"""Accuracy from which a start is a good one."""


def counts(probabilities: Tensor) -> Tensor:
    return torch.bincount(probabilities.argmax(1), minlength=probabilities.shape[1]) / len(probabilities)


ESTIMATES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "equal classes": of_equal_classes,
    "likeliest": likeliest_class_prior,
    "half likeliest, half equal": likely,
    "mean prediction": lambda probabilities: probabilities.mean(0),
    "counts": counts,
    "half counts, half equal": lambda probabilities: (counts(probabilities) + of_equal_classes(probabilities)) / 2,
    "counts, as far as the likeliest agrees": estimate_class_prior,
}


class Distance(NamedTuple):
    """Of an estimate on one part of a target."""

    good: bool
    kind: str
    estimate: str
    value: float


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.do_no_harm.estimates",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", type=Path, metavar="RUNS")
    parser.add_argument("--draws", type=int, default=5, help="parts of each kind (default: 5)")
    args = parser.parse_args(words)
    starts = sorted(args.runs.glob("erm/*/self-training-seed*"))
    try:
        if not starts:
            raise UserError(f"{args.runs} holds no erm/PAIR/self-training-seed*")
        print(table([one for start in starts for one in distances(start, args.draws)]))
    except UserError as error:
        print(f"estimates: error: {error}", file=sys.stderr)
        return 2
    return 0


def distances(run: Path, draws: int) -> Iterator[Distance]:
    """Of every estimate on parts of the target of a run."""
    saved = read_logits(run)["epoch-000"]
    if saved.labels is None:
        raise UserError(f"{run} has no labels")
    probabilities, labels = torch.from_numpy(saved.logits).float().softmax(1), saved.labels
    good = float((probabilities.argmax(1).numpy() == labels).mean()) >= GOOD
    generator = np.random.default_rng(0)
    for kind in KINDS:
        for _ in range(draws if kind != "balanced" else 1):
            part = drawn(labels, probabilities.shape[1], kind, generator)
            truth = torch.from_numpy(np.bincount(labels[part], minlength=probabilities.shape[1]) / len(part))
            for name, estimate in ESTIMATES.items():
                value = float((estimate(probabilities[torch.from_numpy(part)]) - truth).abs().sum() / 2)
                yield Distance(good, kind, name, value)


def table(found: Sequence[Distance]) -> str:
    """A row an estimate, a column a kind, good starts before the others."""
    columns = [(good, kind) for good in (True, False) for kind in KINDS if any(one.good == good for one in found)]
    names = [f"{'good' if good else 'weak'} start, {kind}" for good, kind in columns]
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "---:|" * len(columns)]
    for estimate in ESTIMATES:
        own = [one for one in found if one.estimate == estimate]
        means = [fmean(one.value for one in own if (one.good, one.kind) == column) for column in columns]
        lines.append(f"| {estimate} | " + " | ".join(f"{mean:.2f}" for mean in means) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
