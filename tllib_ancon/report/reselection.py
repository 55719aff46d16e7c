"""Another choice of the epoch of a finished run, by any criterion, from what the run wrote down."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tllib_ancon.errors import UserError
from tllib_ancon.report import runs
from tllib_ancon.selection import CRITERIA, PAPER_CRITERIA, best_epoch, selection_spread
from tllib_ancon.training.files import read_json
from tllib_ancon.training.run import BEST, LATEST, METRICS, RESULT, RunDirectory


def choose(metrics: Sequence[Mapping[str, Any]], criterion: str) -> Mapping[str, Any]:
    """The best adapted epoch by this criterion; epoch 0, the source model, does not compete, as in the paper."""
    adapted = [line for line in metrics if line["epoch"] > 0]
    return adapted[best_epoch([line.get(criterion, math.nan) for line in adapted], criterion)]


def read_metrics(run: RunDirectory) -> list[dict[str, Any]]:
    """The metrics of an adaptation that holds an adapted epoch with its scores."""
    command = run.config().get("command")
    metrics = runs.read_metrics(run.path) if (run.path / METRICS).is_file() else []
    if not any(line["epoch"] > 0 and CRITERIA.keys() & line.keys() for line in metrics):
        raise UserError(
            f"{run.path}: {command or 'this run'} holds no adapted epoch to select; pass an adaptation's folder"
        )
    return metrics


def table(metrics: Sequence[Mapping[str, Any]]) -> str:
    """A row a criterion: the epoch it chooses, its score there, and accuracy and ECE where they are on record; and the
    paper's "maximum performance change under different selection methods", in points of accuracy."""
    labelled = any("accuracy" in line for line in metrics)
    scored = [name for name in CRITERIA if any(not math.isnan(line.get(name, math.nan)) for line in metrics[1:])]
    chosen = {name: choose(metrics, name) for name in scored}
    rows = [f"{'criterion':<18}{'epoch':>6}{'score':>10}" + (f"{'accuracy':>10}{'ECE':>8}" if labelled else "")]
    shown = [(name, line, f"{line[name]:.4f}") for name, line in chosen.items()]
    for name, line, score in [("(start)", metrics[0], ""), *shown, ("(last)", metrics[-1], "")]:
        numbers = f"{line['accuracy']:>10.2f}{line['ece']:>8.4f}" if {"accuracy", "ece"} <= line.keys() else ""
        rows += [f"{name:<18}{line['epoch']:>6}{score:>10}{numbers}"] if labelled or score else []
    accuracies = {name: line["accuracy"] for name, line in chosen.items() if "accuracy" in line}
    if labelled and len(accuracies) < len(chosen):
        rows += ["", "an epoch without accuracy and ECE is not on record: the run recorded some epochs (record_every)"]
    elif labelled and set(PAPER_CRITERIA) <= set(scored):
        paper = selection_spread({name: accuracies[name] for name in PAPER_CRITERIA})
        rows += ["", "maximum performance change under different selection methods, in points of accuracy:"]
        rows.append(f"{paper:.2f} for {', '.join(PAPER_CRITERIA)}; {selection_spread(accuracies):.2f} for all")
        rows.append("accuracy in %; ECE with 15 bins over [0, 1]; neither was used to choose")
    return "\n".join(rows)


def chosen_checkpoint(run: RunDirectory, epoch: int) -> Path:
    """Where the model of this epoch is kept."""
    if (kept := run.epoch_checkpoint(epoch)).is_file():
        return kept
    result = read_json(run.path / RESULT) if (run.path / RESULT).is_file() else {}
    if result.get("selected_epoch") == epoch:
        return run.checkpoints / BEST
    if isinstance(last := result.get("last"), dict) and last.get("epoch") == epoch:
        return run.checkpoints / LATEST
    raise UserError(
        f"{run.path} did not keep the model of epoch {epoch}: repeat that run with `save_epochs=True` and another `log`"
    )
