"""The result of an adaptation: the model, its numbers, and what a user does with them next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.measures.selection import CRITERIA, best_epoch
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.text import Shown
from tllib_ancon.runtime.types import Metrics, Record

MEASURES = {
    "accuracy": "accuracy {:.2f} %",
    "accuracy_one_view": "{:.2f} % from one view",
    "ece": "ECE (15 bins) {:.4f}",
}
"""Metrics by labels in the summary of a run."""


@dataclass(frozen=True, repr=False)
class AdaptationResult(Shown):
    """The result of an adaptation; ``print`` shows it in a few lines.

    Attributes:
        model: with the weights of the selected epoch, in evaluation mode; of the class that was given, with its
            attributes and the names of its state dict. It predicts from one view of an image. ``predict`` from a run
            directory combines as many as its training, one by default. ``views=2`` does the same with this model
        metrics: numbers of each epoch; the first entry is the source model's
        selected_epoch: position in ``metrics`` of the epoch whose model this is
        summary: what ``result.json`` holds
        config: the settings with every default filled in
        notes: what was decided about the model, the images and the settings, and what the training told, also with
            ``quiet=True``
    """

    model: nn.Module
    metrics: list[Metrics]
    selected_epoch: int
    summary: Record
    config: AdaptConfig
    notes: tuple[Note, ...] = ()

    def __repr__(self) -> str:
        lines = [f"{self.config.method}, {self.config.epochs} epochs", result_summary(self.summary)]
        if self.config.log is not None:
            lines.append(f"kept in {self.config.log}")
        return "\n".join(lines)


def result_of(settings: AdaptConfig, num_held_out: int, metrics: Sequence[Metrics]) -> Record:
    """What ``result.json`` holds, from the metrics of all epochs. The source model, epoch 0, is never selected."""
    criterion = settings.criterion
    epoch = len(metrics) - 1
    is_better = None
    if criterion in CRITERIA:
        scores = [line.get(criterion, math.nan) for line in metrics]
        epoch = 1 + best_epoch(scores[1:], criterion)
        is_better = best_epoch([scores[0], scores[epoch]], criterion) == 1
    return {
        "method": settings.method,
        "criterion": settings.criterion,
        "held_out": num_held_out,
        "start": metrics[0],
        "selected_epoch": epoch,
        "selected": metrics[epoch],
        "better_than_start": is_better,
        "last": metrics[-1],
    }


def result_summary(result: Record) -> str:
    """The lines that an adaptation ends with, from its ``result.json``."""
    lines: list[str] = []
    criterion = result["criterion"]
    chosen = "last"
    measures = MEASURES
    if criterion in CRITERIA:
        chosen = f"selected by {criterion}"
        measures = {criterion: criterion + " {:.4f}", **MEASURES}
        images = "the target images"
        if result["held_out"]:
            images = f"the {result['held_out']} held-out images"
        end = "higher" if CRITERIA[criterion].sign > 0 else "lower"
        lines.append(f"{criterion} of {images}: {end} is better")
    selected = result["selected"]
    last = result["last"]
    lines.append(_measured("source model (epoch 0)", result["start"], measures))
    lines.append(_measured(f"adapted model (epoch {selected['epoch']}, {chosen})", selected, measures))
    if last != selected:
        lines.append(_measured(f"last epoch ({last['epoch']})", last, measures))
    if "changed" in selected:
        lines.append(f"{100 * selected['changed']:.1f} % of the predicted classes changed")
    if result["better_than_start"] is False:
        lines.append(
            f"no epoch has a better {criterion} than the source model, and adapting may have done harm: a smaller "
            "learning rate often helps, and some labels tell which model is better (certify)"
        )
    return "\n".join(lines)


def _measured(title: str, metrics: Metrics, measures: Mapping[str, str]) -> str:
    """A line with the measures that an epoch has."""
    values = [form.format(metrics[measure]) for measure, form in measures.items() if measure in metrics]
    if not values:
        return title
    return f"{title}: {', '.join(values)}"
