"""Figures of finished runs, as PNG and drawn without a display; each is drawn only if the runs hold what it shows."""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from tllib_ancon import evaluation
from tllib_ancon.errors import UserError
from tllib_ancon.laboratory.curves import WITH_LABELS, WITHOUT_LABELS, draw_curves, whole_ticks
from tllib_ancon.laboratory.finished_runs import ROW, compared_everywhere, label, usual_settings, variant
from tllib_ancon.laboratory.tables import ACCURACY, ECE, LARGEST_CHANGE, accuracies_by_criterion, measured
from tllib_ancon.text import showable
from tllib_ancon.training.checkpointing import read_predictions

SWEPT = {"smoothing": "λ", "beta": "β", "schedule": "schedule of λ"}
MOST_PANELS, MOST_CLASSES = 9, 100


@dataclass(frozen=True)
class Picture:
    """A figure as PNG: a short name for its file, and what it shows."""

    name: str
    title: str
    png: bytes


@dataclass(frozen=True)
class Predicted:
    title: str
    classes: Sequence[str]
    probabilities: Tensor  # (N, K)
    labels: Tensor  # (N,)
    votes: Tensor | None  # (N, K)


def figures(runs: pd.DataFrame, varied: Sequence[str]) -> tuple[list[Picture], list[str]]:
    """All figures that these runs can fill, and which predictions cannot be read, one text each."""
    labelled, unlabelled = runs[runs.labelled], runs[~runs.labelled]
    predicted, notes = _with_predictions(labelled)
    drawn = (
        [*_of_a_sweep(labelled, varied)]
        if varied
        else [
            _curves("epochs", "Accuracy and ECE", labelled, WITH_LABELS),
            _by_severity(labelled[labelled.severity > 0]),
            _selection_boxes(labelled),
            _curves("epochs-without-labels", "InfoMax, votes and threshold", unlabelled, WITHOUT_LABELS),
        ]
    )
    return [picture for picture in (*drawn, *_of_predictions(predicted)) if picture is not None], notes


def new_figure(panels: int, side: float = 5.0) -> tuple[Figure, Sequence[Axes]]:
    columns = min(panels, 3)
    rows = -(-panels // columns)
    figure = Figure(figsize=(max(6.0, side * columns), max(4.0, side * rows)), layout="compressed")
    return figure, [figure.add_subplot(rows, columns, 1 + place) for place in range(panels)]


def boxes(name: str, title: str, values: Iterable[tuple[str, float]], axis: str) -> Picture | None:
    """A box for each name among these values, where one has several; triangles are means."""
    groups: dict[str, list[float]] = {}
    for group, value in values:
        groups.setdefault(plain(group), []).append(value)
    if max(map(len, groups.values()), default=0) < 2:
        return None
    figure, (panel,) = new_figure(1)
    figure.set_size_inches(12, 1 + 0.35 * len(groups))
    panel.boxplot(list(groups.values()), vert=False, tick_labels=list(groups), showmeans=True)
    panel.set(xlabel=axis)
    panel.invert_yaxis()
    panel.grid(alpha=0.3, axis="x")
    return _picture(name, title, figure)


def plain(text: str) -> str:
    """Text that matplotlib can show and does not read as mathematics."""
    return showable(text).replace("$", r"\$")


def _picture(name: str, title: str, figure: Figure) -> Picture:
    file = io.BytesIO()
    figure.savefig(file, dpi=110, format="png", bbox_inches="tight", pad_inches=0.1)
    return Picture(name, title, file.getvalue())


def _of_a_sweep(runs: pd.DataFrame, varied: Sequence[str]) -> Iterator[Picture | None]:
    """A figure for each axis of a sweep, and one for its design choices."""
    usual = usual_settings(runs.config, varied)
    designs = {name: value for name, value in usual.items() if name not in SWEPT}
    for own in filter(None, (*([name] for name in SWEPT if name in usual), [*designs])):
        others = {name: value for name, value in usual.items() if name not in own}
        part = runs.loc[[not variant(config, others) for config in runs.config]]
        what = SWEPT.get(own[0])
        texts = [str(config.get(own[0])) if what else variant(config, designs) for config in part.config]
        rows = zip(texts, part.method, part.accuracy, strict=True)
        values = [(text or method, value) for text, method, value in sorted(rows)]
        if not what or len(dict(values)) > 1:
            title = f"Accuracy by {what or 'design choice'}; a box over pairs and seeds, triangles are means"
            yield boxes(f"sweep-{own[0]}" if what else "variants", title, values, "accuracy (%)")


def _curves(name: str, what: str, runs: pd.DataFrame, measures: Mapping[str, str]) -> Picture | None:
    runs = compared_everywhere(runs)
    if not (runs.metrics.map(len) > 1).any():
        return None
    file = io.BytesIO()
    draw_curves(zip(runs.label.map(plain), runs.seed, runs.metrics, strict=True), file, measures)
    pairs = len(runs[["target", "column"]].drop_duplicates())
    over = f", mean over the {pairs} pairs that every method has" if pairs > 1 else ""
    return Picture(name, f"{what} by epoch{over}; the band is the range over seeds", file.getvalue())


def _by_severity(runs: pd.DataFrame) -> Picture | None:
    if runs.severity.nunique() < 2:
        return None
    figure, panels = new_figure(2)
    for panel, quantity in zip(panels, (ACCURACY, ECE), strict=True):
        for (start, method, _), values in measured(runs, quantity).groupby(level=ROW, sort=False):
            means = values.groupby(level="severity").mean()
            panel.plot(means.index, means, marker="o", label=plain(label(start, method)))
        panel.set(xlabel="severity", xticks=sorted(runs.severity.unique()), ylabel=WITH_LABELS[quantity.name])
        panel.grid(alpha=0.3)
    panels[0].legend()
    return _picture("severity", "Accuracy and ECE by severity, mean over corruptions and seeds", figure)


def _selection_boxes(runs: pd.DataFrame) -> Picture | None:
    """None where one of the runs lacks a chosen epoch on record: the others would be those whose criteria agree."""
    changes = accuracies_by_criterion(runs)[LARGEST_CHANGE]
    if changes.hasnans:
        return None
    title = "Largest change of the accuracy between the paper's criteria that select the epoch; a box over runs"
    values = zip(runs.label[changes.index], changes, strict=True)
    return boxes("selection", title, values, "change of accuracy (points)")


def _with_predictions(runs: pd.DataFrame) -> tuple[list[Predicted], list[str]]:
    """Predictions of the first run of each method and variant, and why others are missing, one text each."""
    found: dict[str, Predicted] = {}
    notes: list[str] = []
    for run in runs.itertuples():
        name = plain(", ".join(filter(None, (run.label, run.variant))))
        try:
            saved = None if name in found else read_predictions(run.path)
        except UserError as error:
            notes.append(f"left out of the figures: {error}")
            continue
        if saved is not None and saved.labels is not None:
            title = f"{name}, {plain(run.pair)}, seed {run.seed}"
            probabilities = torch.from_numpy(saved.logits.astype(np.float32)).softmax(1)
            labels = torch.from_numpy(saved.labels.astype(np.int64))
            votes = None if saved.votes is None else torch.from_numpy(saved.votes.astype(np.float32))
            classes = class_names(run.config, probabilities.shape[1])
            found[name] = Predicted(title, classes, probabilities, labels, votes)
    return list(found.values()), notes


def class_names(config: Mapping[str, Any], num_classes: int) -> list[str]:
    """Names of the classes as the run wrote them down, or their labels."""
    written = (config.get("inputs") or {}).get("classes")
    names = written if isinstance(written, list) and len(written) == num_classes else range(num_classes)
    return [plain(name if len(name) <= 24 else f"{name[:23]}…") for name in map(str, names)]


def _of_predictions(predicted: Sequence[Predicted]) -> Iterator[Picture | None]:
    yield _votes(predicted)
    if compared := predicted[:MOST_PANELS]:
        title = f"Reliability diagrams, {evaluation.NUM_BINS} bins"
        yield _picture("reliability", title, _panels(compared, _draw_reliability))
    if few := [one for one in compared if len(one.classes) <= MOST_CLASSES]:
        figure = _panels(few, draw_confusion, 4.0 + 0.11 * max(len(one.classes) for one in few))
        image, fraction = figure.axes[0].images[0], "fraction of the images of a class"
        figure.colorbar(image, ax=figure.axes, shrink=0.6, aspect=30, label=fraction)
        yield _picture("confusion", "Confusion matrices", figure)


def _votes(predicted: Sequence[Predicted]) -> Picture | None:
    figure, (panel,) = new_figure(1)
    for one in predicted:
        if one.votes is not None and (one.votes == one.votes.round()).all() and one.votes.any():
            adapted = one.votes.sum(1) > 0
            curve = evaluation.accuracy_by_votes(one.votes[adapted], one.labels[adapted])
            panel.plot(curve.num_votes.numpy(), curve.accuracy.numpy(), marker=".", label=one.title)
    if not panel.lines:
        return None
    panel.set(xlabel="confident votes of an image", ylabel="accuracy of the temporal ensemble (%)")
    whole_ticks(panel.xaxis)
    panel.grid(alpha=0.3)
    panel.legend()
    return _picture("votes", "Accuracy of the temporal ensemble by number of confident votes", figure)


def _panels(predicted: Sequence[Predicted], draw: Callable[[Axes, Predicted], None], side: float = 4.0) -> Figure:
    figure, panels = new_figure(len(predicted), side)
    for panel, one in zip(panels, predicted, strict=True):
        draw(panel, one)
        panel.set_title(one.title, fontsize=9)
    return figure


def _draw_reliability(panel: Axes, one: Predicted) -> None:
    data = evaluation.reliability_diagram_data(one.probabilities, one.labels)
    width = 1 / len(data.counts)
    panel.bar(data.edges[:-1].numpy(), data.accuracy.nan_to_num(0).numpy(), width, align="edge", edgecolor="white")
    panel.plot([0, 1], [0, 1], color="black", linestyle=":")
    panel.text(0.03, 0.93, f"ECE {evaluation.expected_calibration_error(one.probabilities, one.labels):.3f}")
    panel.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy")


def draw_confusion(panel: Axes, one: Predicted) -> None:
    """The fraction of the images of each class (rows) that are predicted as each class (columns)."""
    counts = evaluation.confusion_matrix(one.probabilities.argmax(1), one.labels, len(one.classes)).double()
    panel.imshow((counts / counts.sum(1, keepdim=True).clamp(min=1)).numpy(), cmap="Blues", vmin=0, vmax=1)
    size = 8 if len(one.classes) <= 12 else 6
    panel.set_xticks(range(len(one.classes)), one.classes, rotation=90, fontsize=size)
    panel.set_yticks(range(len(one.classes)), one.classes, fontsize=size)
    panel.set(xlabel="prediction", ylabel="label")
