"""Figures of finished runs, as PNG and drawn without a display; each is drawn only if the runs hold what it shows."""

import io
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from tllib_ancon.data.domain import numbered
from tllib_ancon.laboratory.curves import (
    COLOURS,
    DPI,
    MARKERS,
    PANELS_IN_A_ROW,
    TITLE_SIZE,
    WIDTH,
    WITH_LABELS,
    WITHOUT_LABELS,
    draw_curves,
    whole_ticks,
)
from tllib_ancon.laboratory.finished_runs import ROW, compared_everywhere, label, usual_settings, variant
from tllib_ancon.laboratory.tables import ACCURACY, ECE, LARGEST_CHANGE, accuracies_by_criterion, measured
from tllib_ancon.measures import evaluation
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.text import counted, showable
from tllib_ancon.runtime.types import Options, Record
from tllib_ancon.training.checkpointing import read_predictions

_AXES = {"smoothing": "λ", "beta": "β", "schedule": "schedule of λ"}
"""Settings that are the axes of a sweep -> what a title calls them; other settings are design choices."""
_MOST_PANELS = 9
_MOST_CLASSES = 100
_LONGEST_NAME = 24
"""Characters of the name of a class."""


@dataclass(frozen=True)
class _Picture:
    """A figure as PNG: a short name for its file, and what it shows."""

    name: str
    title: str
    png: bytes


@dataclass(frozen=True)
class _Predicted:
    title: str
    classes: Sequence[str]
    probabilities: Tensor  # (N, K)
    labels: Tensor  # (N,)
    votes: Tensor | None  # (N, K)


def figures(runs: pd.DataFrame, varied: Sequence[str]) -> tuple[list[_Picture], list[str]]:
    """All figures that these runs can fill, and which predictions cannot be read, one text each."""
    labelled = runs[runs.labelled]
    predicted, notes = _with_predictions(labelled)
    drawn = _of_a_sweep(labelled, varied) if varied else _of_scores(runs)
    return [picture for picture in (*drawn, *_of_predictions(predicted)) if picture is not None], notes


def _of_scores(runs: pd.DataFrame) -> Iterator[_Picture | None]:
    labelled = runs[runs.labelled]
    yield _curves("epochs", "Accuracy and ECE", labelled, WITH_LABELS)
    yield _by_severity(labelled[labelled.severity > 0])
    yield _selection_boxes(labelled)
    yield _curves("epochs-without-labels", "InfoMax, votes and threshold", runs[~runs.labelled], WITHOUT_LABELS)


def _new_figure(panels: int, side: float = WIDTH / PANELS_IN_A_ROW) -> tuple[Figure, Sequence[Axes]]:
    columns = min(panels, PANELS_IN_A_ROW)
    rows = math.ceil(panels / columns)
    figure = Figure(figsize=(max(WIDTH, side * columns), max(4.0, side * rows)), layout="compressed")
    places = [figure.add_subplot(rows, columns, 1 + place) for place in range(panels)]
    for panel in places:
        panel.set_prop_cycle(color=COLOURS, marker=[*MARKERS])
    return figure, places


def _boxes(name: str, title: str, values: Iterable[tuple[str, float]], axis: str) -> _Picture | None:
    """A box for each name among these values, where one has several; triangles are means."""
    groups: dict[str, list[float]] = {}
    for group, value in values:
        groups.setdefault(_plain(group), []).append(value)
    if not any(len(group) > 1 for group in groups.values()):
        return None
    figure, (panel,) = _new_figure(1)
    figure.set_size_inches(WIDTH, 1.3 + 0.35 * len(groups))
    panel.boxplot(
        list(groups.values()),
        vert=False,
        tick_labels=list(groups),
        showmeans=True,
        medianprops={"color": COLOURS[0], "linewidth": 2},
        meanprops={"marker": "^", "markerfacecolor": COLOURS[1], "markeredgecolor": COLOURS[1]},
    )
    panel.set(xlabel=axis)
    panel.invert_yaxis()
    panel.grid(alpha=0.3, axis="x")
    figure.suptitle(_highest_mean(groups, axis), fontsize=TITLE_SIZE)
    return _picture(name, title, figure)


def _highest_mean(groups: Mapping[str, Sequence[float]], axis: str) -> str:
    """The result that a figure shows; ``axis`` is a quantity with its unit in brackets."""
    means = {group: fmean(values) for group, values in groups.items()}
    best = max(means, key=means.__getitem__)
    quantity, _, unit = axis.rstrip(")").partition(" (")
    if len(means) == 1:
        return f"{best}: {quantity} {means[best]:.1f} {unit}"
    return f"{best} has the highest mean {quantity}: {means[best]:.1f} {unit}"


def _plain(text: str) -> str:
    """Text that matplotlib can show and does not read as mathematics."""
    return showable(text).replace("$", r"\$")


def _picture(name: str, title: str, figure: Figure) -> _Picture:
    file = io.BytesIO()
    figure.savefig(file, dpi=DPI, format="png", bbox_inches="tight", pad_inches=0.1)
    return _Picture(name, title, file.getvalue())


def _of_a_sweep(runs: pd.DataFrame, varied: Sequence[str]) -> Iterator[_Picture | None]:
    """A figure for each axis of a sweep, and one for its design choices."""
    if runs.empty:
        return
    usual = usual_settings(runs.config, varied)
    for name in _AXES:
        if name not in usual:
            continue
        part = _with_usual_settings(runs, usual, [name])
        settings = [f"{_AXES[name]} = {config.get(name)}" for config in part.config]
        if len(set(settings)) > 1:
            yield _accuracy_boxes(f"sweep-{name}", _AXES[name], settings, part)
    choices = {name: value for name, value in usual.items() if name not in _AXES}
    if choices:
        part = _with_usual_settings(runs, usual, choices)
        variants = [variant(config, choices) for config in part.config]
        yield _accuracy_boxes("variants", "design choice", variants, part)


def _with_usual_settings(runs: pd.DataFrame, usual: Options, free: Collection[str]) -> pd.DataFrame:
    """The runs of a sweep that leave its usual settings in the free ones alone."""
    fixed = {name: value for name, value in usual.items() if name not in free}
    return runs[[not variant(config, fixed) for config in runs.config]]


def _accuracy_boxes(name: str, what: str, groups: Sequence[str], runs: pd.DataFrame) -> _Picture | None:
    """A box for each group of runs; a group without a name is called as its method."""
    rows = sorted(zip(groups, runs.method, runs.accuracy, strict=True))
    values = [(group or method, accuracy) for group, method, accuracy in rows]
    title = f"Accuracy by {what}; a box over pairs and seeds, triangles are means"
    return _boxes(name, title, values, "accuracy (%)")


def _curves(name: str, what: str, runs: pd.DataFrame, measures: Mapping[str, str]) -> _Picture | None:
    compared = compared_everywhere(runs)
    if not (compared.metrics.map(len) > 1).any():
        return None
    file = io.BytesIO()
    draw_curves(zip(compared.label.map(_plain), compared.seed, compared.metrics, strict=True), file, measures)
    pairs = compared.pair.nunique()
    mean = ""
    if pairs > 1:
        mean = f", mean over the {pairs} pairs that every method has"
    return _Picture(name, f"{what} by epoch{mean}; the band is the range over seeds", file.getvalue())


def _by_severity(runs: pd.DataFrame) -> _Picture | None:
    severities = sorted(runs.severity.unique())
    if len(severities) < 2:
        return None
    figure, panels = _new_figure(2)
    accuracies: dict[str, Sequence[float]] = {}
    for panel, quantity in zip(panels, (ACCURACY, ECE), strict=True):
        for (start, method, _), values in measured(runs, quantity).groupby(level=ROW, sort=False):
            means = values.groupby(level="severity").mean()
            name = _plain(label(start, method))
            panel.plot(means.index, means, label=name)
            if quantity is ACCURACY:
                accuracies[name] = list(means)
        panel.set(xlabel="severity", xticks=severities, ylabel=WITH_LABELS[quantity.name])
        panel.grid(alpha=0.3)
    panels[0].legend()
    figure.suptitle(_highest_mean(accuracies, WITH_LABELS[ACCURACY.name]), fontsize=TITLE_SIZE)
    return _picture("severity", "Accuracy and ECE by severity, mean over corruptions and seeds", figure)


def _selection_boxes(runs: pd.DataFrame) -> _Picture | None:
    """None where one of the runs lacks a chosen epoch on record: the others would be those whose criteria agree."""
    changes = accuracies_by_criterion(runs)[LARGEST_CHANGE]
    if changes.hasnans:
        return None
    title = "Largest change of the accuracy between the paper's criteria that select the epoch; a box over runs"
    values = zip(runs.label[changes.index], changes, strict=True)
    return _boxes("selection", title, values, "change of accuracy (points)")


def _with_predictions(runs: pd.DataFrame) -> tuple[list[_Predicted], list[str]]:
    """Predictions of the first run of each method and variant, and why others are missing, one text each."""
    predicted: dict[str, _Predicted] = {}
    notes = []
    for run in runs.itertuples():
        name = _plain(", ".join(filter(None, (run.label, run.variant))))
        if name not in predicted:
            try:
                predictions = read_predictions(run.path)
            except UserError as error:
                notes.append(f"left out of the figures: {error}")
                continue
            if predictions is not None and predictions.labels is not None:
                title = f"{name}, {_plain(run.pair)}, seed {run.seed}"
                predicted[name] = _predicted(title, predictions, run.config)
    return list(predicted.values()), notes


def _predicted(title: str, predictions: Any, config: Record) -> _Predicted:
    logits = torch.from_numpy(predictions.logits.astype(np.float32))
    votes = None
    if predictions.votes is not None:
        votes = torch.from_numpy(predictions.votes.astype(np.float32))
    return _Predicted(
        title,
        classes=_class_names(config, logits.shape[1]),
        probabilities=logits.softmax(1),
        labels=torch.from_numpy(predictions.labels.astype(np.int64)),
        votes=votes,
    )


def _class_names(config: Record, num_classes: int) -> list[str]:
    """Names of the classes as the run wrote them down, or their labels."""
    recorded = (config.get("inputs") or {}).get("classes")
    if not isinstance(recorded, list) or len(recorded) != num_classes:
        return numbered(num_classes)
    return [_plain(_shortened(str(name))) for name in recorded]


def _shortened(name: str) -> str:
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 1]}…"


def _of_predictions(predicted: Sequence[_Predicted]) -> Iterator[_Picture | None]:
    yield _votes(predicted)
    shown = predicted[:_MOST_PANELS]
    if shown:
        yield _reliability_diagrams(shown)
    with_few_classes = [run for run in shown if len(run.classes) <= _MOST_CLASSES]
    if with_few_classes:
        yield _confusion_matrices(with_few_classes)


def _reliability_diagrams(predicted: Sequence[_Predicted]) -> _Picture:
    figure = _panels(predicted, _draw_reliability, 3.5)
    errors = {run.title: _calibration_error(run) for run in predicted}
    best = min(errors, key=errors.__getitem__)
    lowest = ", ECE"
    if len(errors) > 1:
        lowest = " has the lowest ECE"
    figure.suptitle(f"{best}{lowest}: {errors[best]:.3f}", fontsize=TITLE_SIZE)
    return _picture("reliability", f"Reliability diagrams, {evaluation.NUM_BINS} bins", figure)


def _confusion_matrices(predicted: Sequence[_Predicted]) -> _Picture:
    most_classes = max(len(run.classes) for run in predicted)
    figure = _panels(predicted, _draw_confusion, 3.5 + 0.11 * most_classes)
    image = figure.axes[0].images[0]
    figure.colorbar(image, ax=figure.axes, shrink=0.6, aspect=30, label="fraction of the images of a class")
    accuracies = {run.title: [evaluation.accuracy(run.probabilities, run.labels)] for run in predicted}
    figure.suptitle(_highest_mean(accuracies, WITH_LABELS[ACCURACY.name]), fontsize=TITLE_SIZE)
    return _picture("confusion", "Confusion matrices", figure)


def _votes(predicted: Sequence[_Predicted]) -> _Picture | None:
    figure, (panel,) = _new_figure(1)
    curves: dict[str, Any] = {}
    for run in predicted:
        votes = run.votes
        if votes is not None and votes.any() and (votes == votes.round()).all():
            adapted = votes.sum(1) > 0
            curves[run.title] = evaluation.accuracy_by_votes(votes[adapted], run.labels[adapted])
    if not curves:
        return None
    for title, curve in curves.items():
        panel.plot(curve.num_votes.numpy(), curve.accuracy.numpy(), markersize=4, label=title)
    panel.set(xlabel="confident votes of an image", ylabel="accuracy of the temporal ensemble (%)")
    whole_ticks(panel.xaxis)
    panel.grid(alpha=0.3)
    panel.legend()
    figure.suptitle(_first_and_last(curves), fontsize=TITLE_SIZE)
    return _picture("votes", "Accuracy of the temporal ensemble by number of confident votes", figure)


def _first_and_last(curves: Mapping[str, Any]) -> str:
    """How often the ensemble is right with the fewest and with the most votes, of the first run."""
    title, curve = next(iter(curves.items()))
    fewest = counted(int(curve.num_votes[0]), "vote")
    most = counted(int(curve.num_votes[-1]), "vote")
    first = float(curve.accuracy[0])
    last = float(curve.accuracy[-1])
    return f"{title}: right on {first:.0f} % of images with {fewest}, {last:.0f} % with {most}"


def _panels(predicted: Sequence[_Predicted], draw: Callable[[Axes, _Predicted], None], side: float) -> Figure:
    figure, panels = _new_figure(len(predicted), side)
    for panel, run in zip(panels, predicted, strict=True):
        draw(panel, run)
        panel.set_title(run.title, fontsize=9)
    return figure


def _draw_reliability(panel: Axes, run: _Predicted) -> None:
    data = evaluation.reliability_diagram_data(run.probabilities, run.labels)
    width = 1 / len(data.counts)
    left_edges = data.edges[:-1].numpy()
    heights = data.accuracy.nan_to_num(0).numpy()
    panel.bar(left_edges, heights, width, align="edge", edgecolor="white")
    panel.plot([0, 1], [0, 1], color="black", linestyle=":", marker="")
    panel.text(0.03, 0.93, f"ECE {_calibration_error(run):.3f}")
    panel.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy")


def _calibration_error(run: _Predicted) -> float:
    return evaluation.expected_calibration_error(run.probabilities, run.labels)


def _draw_confusion(panel: Axes, run: _Predicted) -> None:
    """The fraction of the images of each class (rows) that are predicted as each class (columns)."""
    num_classes = len(run.classes)
    counts = evaluation.confusion_matrix(run.probabilities.argmax(1), run.labels, num_classes).double()
    fractions = counts / counts.sum(1, keepdim=True).clamp(min=1)
    panel.imshow(fractions.numpy(), cmap="Blues", vmin=0, vmax=1)
    size = 8 if num_classes <= 12 else 6
    panel.set_xticks(range(num_classes), run.classes, rotation=90, fontsize=size)
    panel.set_yticks(range(num_classes), run.classes, fontsize=size)
    panel.set(xlabel="prediction", ylabel="label")
