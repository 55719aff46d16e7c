"""How far estimates of the class prior are from the truth, on logits that runs have stored; nothing is trained.

    python -m benchmarks.do_no_harm.estimates RUNS [--draws 5]

RUNS is what ``benchmarks/evidence/run.sh`` made. Of the start's logits on each target, parts are drawn whose classes
are balanced, long-tailed and few (as in :mod:`benchmarks.do_no_harm.classes`). Prints Markdown: by estimate and kind,
half the sum of absolute differences between estimated and true shares, 0 to 1, as a mean over draws and pairs; pairs
whose start is right on at least three quarters of the images are apart. Labels make the parts and the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from benchmarks.do_no_harm import parser, run
from benchmarks.do_no_harm.classes import drawn, likely, of_equal_classes
from benchmarks.do_no_harm.criteria import probabilities
from benchmarks.do_no_harm.round2 import START, stored
from benchmarks.tables import markdown
from tllib_ancon.errors import UserError
from tllib_ancon.self_training.adaptive import estimate_class_prior, likeliest_class_prior

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


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("runs", type=Path, metavar="RUNS")
    arguments.add_argument("--draws", type=int, default=5, help="parts of each kind (default: 5)")
    args = arguments.parse_args(words)
    starts = sorted(args.runs.glob("erm/*/self-training-seed*"))
    if not starts:
        raise UserError(f"{args.runs} holds no erm/PAIR/self-training-seed*")
    found = pd.DataFrame([row for start in starts for row in distances(start, args.draws)])
    means = found.pivot_table("value", "estimate", ["start", "kind"], sort=False)
    names = [", ".join(column) for column in means.columns]
    rows = [(estimate, *(f"{mean:.2f}" for mean in means.loc[estimate])) for estimate in ESTIMATES]
    print(markdown(["", *names], rows, numbers=True), end="")


def distances(adaptation: Path, draws: int) -> Iterator[dict[str, Any]]:
    """Of every estimate on parts of the target of a run."""
    start = stored(adaptation)[START]
    if "labels" not in start:
        raise UserError(f"{adaptation} has no labels")
    said, labels = probabilities(start), start["labels"].numpy()
    good = float((said.argmax(1).numpy() == labels).mean()) >= GOOD
    generator = np.random.default_rng(0)
    for kind in KINDS:
        for _ in range(draws if kind != "balanced" else 1):
            part = drawn(labels, said.shape[1], kind, generator)
            truth = torch.from_numpy(np.bincount(labels[part], minlength=said.shape[1]) / len(part))
            for name, estimate in ESTIMATES.items():
                value = float((estimate(said[torch.from_numpy(part)]) - truth).abs().sum() / 2)
                yield {"start": f"{'good' if good else 'weak'} start", "kind": kind, "estimate": name, "value": value}


if __name__ == "__main__":
    run(main)
