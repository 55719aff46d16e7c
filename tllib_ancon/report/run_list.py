"""Every run of a report with its numbers, for those who compute their own."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from tllib_ancon.report.runs import AdaptedRun

SCORES = ("accuracy", "ece")
MODELS = {"start": "start_", "selected": "", "last": "last_"}
"""Entry of a result -> what stands before the names of its columns."""


def runs_csv(runs: Sequence[AdaptedRun], varied: Sequence[str]) -> str:
    """A line a run, sorted by pair, start, method and seed: the values of the settings that the table compares,
    accuracy (%) and ECE of start, selected and last model, and the selected epoch; empty where the target had no
    labels.
    """
    names = [name.replace("-", "_") for name in varied]
    scores = [f"{prefix}{score}" for prefix in MODELS.values() for score in SCORES]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["pair", "start", "method", *names, "seed", "selected_epoch", *scores])
    for run in sorted(runs, key=lambda run: (run.target, run.column, run.start, run.method, run.seed)):
        values = [run.config.get(name) for name in names]
        place = run.column if run.severity is None else f"{run.column}/{run.severity}"
        epoch = run.measured("selected").get("epoch")
        writer.writerow([place, run.start, run.method, *values, run.seed, epoch, *_scores(run)])
    return file.getvalue()


def _scores(run: AdaptedRun) -> Iterator[str]:
    for which in MODELS:
        measured = run.measured(which)
        yield from ("" if measured.get(score) is None else f"{measured[score]:.4f}" for score in SCORES)
