"""Another choice of the epoch of a finished run, by any criterion, from what the run wrote down."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tllib_ancon.errors import UserError
from tllib_ancon.report import runs
from tllib_ancon.selection import CRITERIA, PAPER_CRITERIA, best_epoch, find_criterion, selection_spread
from tllib_ancon.training.run_directory import BEST, CONFIG, LATEST, METRICS, RESULT, RunDirectory


@dataclass(frozen=True)
class Choice:
    """The epoch that a criterion chooses, and that epoch's line of ``metrics.jsonl``."""

    criterion: str
    metrics: dict[str, Any]

    @property
    def epoch(self) -> int:
        return int(self.metrics["epoch"])

    @property
    def score(self) -> float:
        return float(self.metrics[self.criterion])


def choose_epoch(metrics: list[dict[str, Any]], criterion: str) -> Choice:
    """The best adapted epoch by this criterion; epoch 0, the start, does not compete, as in the paper.

    Args:
        metrics: the lines of ``metrics.jsonl``, each with a score of the criterion
        criterion: a name of :data:`tllib_ancon.selection.CRITERIA`

    Raises:
        UserError: an unknown criterion; no adapted epoch, or none with a score
    """
    name = find_criterion(criterion).name
    adapted = [line for line in metrics if line["epoch"] > 0]
    return Choice(name, adapted[best_epoch([line.get(name, math.nan) for line in adapted], name)])


def read_metrics(run: RunDirectory) -> list[dict[str, Any]]:
    """The metrics of an adaptation.

    Raises:
        UserError: no run directory, or one without an adapted epoch and its scores; a damaged file
    """
    if not (run.path / CONFIG).is_file():
        raise UserError(f"{run.path} is not a run directory: it has no {CONFIG}")
    command = runs.read_json(run.path / CONFIG).get("command")
    metrics = runs.read_metrics(run.path) if (run.path / METRICS).is_file() else []
    if not any(line["epoch"] > 0 and CRITERIA.keys() & line.keys() for line in metrics):
        raise UserError(
            f"{run.path}: {command or 'this run'} holds no adapted epoch to select; pass an adaptation's folder"
        )
    return metrics


def spread(metrics: list[dict[str, Any]], criteria: Iterable[str] = PAPER_CRITERIA) -> float:
    """The paper's "maximum performance change under different selection methods", in points of accuracy."""
    return selection_spread({name: choose_epoch(metrics, name).metrics["accuracy"] for name in criteria})


def table(metrics: list[dict[str, Any]]) -> str:
    """A row a criterion: the epoch it chooses, its score there, and accuracy and ECE where they are on record."""
    labelled = any(map(_is_labelled, metrics))
    adapted = [line for line in metrics if line["epoch"] > 0]
    scored = [name for name in CRITERIA if any(not math.isnan(line.get(name, math.nan)) for line in adapted)]
    rows = [f"{'criterion':<18}{'epoch':>6}{'score':>10}" + (f"{'accuracy':>10}{'ECE':>8}" if labelled else "")]
    start = next((line for line in metrics if line["epoch"] == 0), None)
    if start is not None and labelled:
        rows.append(_row("(start)", start, None))
    choices = {name: choose_epoch(metrics, name) for name in scored}
    rows += [_row(name, choice.metrics, choice.score) for name, choice in choices.items()]
    if labelled:
        rows.append(_row("(last)", metrics[-1], None))
    if labelled and not all(_is_labelled(choice.metrics) for choice in choices.values()):
        rows += ["", "an epoch without accuracy and ECE is not on record: the run recorded some epochs (record_every)"]
    elif labelled and set(PAPER_CRITERIA) <= set(scored):
        rows += ["", "maximum performance change under different selection methods, in points of accuracy:"]
        rows.append(f"{spread(metrics):.2f} for {', '.join(PAPER_CRITERIA)}; {spread(metrics, scored):.2f} for all")
        rows.append("accuracy in %; ECE with 15 bins over [0, 1]; neither was used to choose")
    return "\n".join(rows)


def chosen_checkpoint(run: RunDirectory, epoch: int) -> Path:
    """Where the model of this epoch is kept.

    Raises:
        UserError: it was not kept
    """
    if (kept := run.epoch_checkpoint(epoch)).is_file():
        return kept
    result = runs.read_json(run.path / RESULT) if (run.path / RESULT).is_file() else {}
    if result.get("selected_epoch") == epoch:
        return run.checkpoints / BEST
    if isinstance(last := result.get("last"), dict) and last.get("epoch") == epoch:
        return run.checkpoints / LATEST
    raise UserError(
        f"{run.path} did not keep the model of epoch {epoch}: repeat that run with `save_epochs=True` and another `log`"
    )


def _row(name: str, metrics: dict[str, Any], score: float | None) -> str:
    text = f"{name:<18}{metrics['epoch']:>6}" + (f"{'':>10}" if score is None else f"{score:>10.4f}")
    return text + (f"{metrics['accuracy']:>10.2f}{metrics['ece']:>8.4f}" if _is_labelled(metrics) else "")


def _is_labelled(metrics: dict[str, Any]) -> bool:
    return "accuracy" in metrics and "ece" in metrics
