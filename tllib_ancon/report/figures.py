"""Figures of finished runs, as PNG and drawn without a display; each is drawn only if the runs hold what it shows."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from tllib_ancon import evaluation
from tllib_ancon.errors import UserError
from tllib_ancon.report.curves import WITH_LABELS, WITHOUT_LABELS, draw_curves, whole_ticks
from tllib_ancon.report.runs import AdaptedRun, compared_everywhere, label, usual_settings, variant
from tllib_ancon.report.tables import ACCURACY, ECE, LARGEST_CHANGE, accuracies_by_criterion, measured
from tllib_ancon.text import showable
from tllib_ancon.training.saved import SavedPredictions, read_predictions

SWEPT = {"smoothing": "λ", "beta": "β", "schedule": "schedule of λ"}
MOST_PANELS, MOST_CLASSES = 9, 100


@dataclass(frozen=True)
class Picture:
    """A figure as PNG: a short name for its file, and what it shows."""

    name: str
    title: str
    png: bytes


@dataclass(frozen=True)
class Shown:
    """The predictions of one run, with the names of its classes and what stands above its panel."""

    title: str
    classes: Sequence[str]
    saved: SavedPredictions

    @property
    def probabilities(self) -> Tensor:
        return torch.from_numpy(self.saved.logits.astype(np.float32)).softmax(1)

    @property
    def classed(self) -> Tensor:
        """The true class of each image, or the predicted one where there are no labels."""
        classes = self.saved.logits.argmax(1) if self.saved.labels is None else self.saved.labels
        return torch.from_numpy(classes.astype(np.int64))


def figures(runs: pd.DataFrame, varied: Sequence[str]) -> tuple[list[Picture], list[str]]:
    """All figures that these runs can fill, and which predictions could not be shown, one text each."""
    labelled, unlabelled = runs[runs.labelled], runs[~runs.labelled]
    drawn = (
        _of_a_sweep(labelled, varied)
        if varied
        else [
            _curves("epochs", "Accuracy and ECE", labelled, WITH_LABELS),
            _by_severity(labelled[labelled.severity > 0]),
            _selection_boxes(labelled),
            _curves("epochs-without-labels", "InfoMax, votes and threshold", unlabelled, WITHOUT_LABELS),
        ]
    )
    shown, notes = _with_predictions(runs)
    return [picture for picture in (*drawn, *_of_predictions(shown)) if picture is not None], notes


def new_figure(panels: int, side: float = 5.0) -> tuple[Figure, Sequence[Axes]]:
    """A figure of so many square panels of this side in inches, at most three in a row."""
    columns = min(panels, 3)
    rows = -(-panels // columns)
    figure = Figure(figsize=(max(6.0, side * columns), max(4.0, side * rows)), layout="compressed")
    return figure, [figure.add_subplot(rows, columns, 1 + place) for place in range(panels)]


def boxes(name: str, title: str, values: Iterable[tuple[str, float]], axis: str) -> Picture | None:
    """A box for each name among these values, where one has several; triangles are means. Many or long names stand
    below each other."""
    groups: dict[str, list[float]] = {}
    for group, value in values:
        groups.setdefault(plain(group), []).append(value)
    if max(map(len, groups.values()), default=0) < 2:
        return None
    upright = sum(map(len, groups)) <= 60  # characters that fit beside each other
    figure, (panel,) = new_figure(1)
    panel.boxplot(list(groups.values()), vert=upright, tick_labels=list(groups), showmeans=True)
    panel.set(**{"ylabel" if upright else "xlabel": axis})
    if not upright:
        figure.set_size_inches(12, 1 + 0.35 * len(groups))
        panel.invert_yaxis()
    panel.grid(alpha=0.3, axis="y" if upright else "x")
    return _picture(name, title, figure)


def plain(text: str) -> str:
    """Text that matplotlib can show and does not read as mathematics."""
    return showable(text).replace("$", r"\$")


def _picture(name: str, title: str, figure: Figure) -> Picture:
    file = io.BytesIO()
    figure.savefig(file, dpi=110, format="png", bbox_inches="tight", pad_inches=0.1)
    return Picture(name, title, file.getvalue())


def _of_a_sweep(runs: pd.DataFrame, varied: Sequence[str]) -> Iterator[Picture | None]:
    """A figure for each axis of a sweep, and one for its design choices: of the runs that leave the usual settings in
    that alone."""
    usual = usual_settings(runs.run, varied)
    designs = {name: value for name, value in usual.items() if name not in SWEPT}
    for own in filter(None, (*([name] for name in SWEPT if name in usual), [*designs])):
        others = {name: value for name, value in usual.items() if name not in own}
        part = runs.loc[[not variant(run, others) for run in runs.run]]
        what = SWEPT.get(own[0])
        texts = [str(run.config.get(own[0])) if what else variant(run, designs) for run in part.run]
        rows = zip(texts, part.method, part.accuracy, strict=True)
        values = [(text or method, value) for text, method, value in sorted(rows)]
        if not what or len(dict(values)) > 1:
            title = f"Accuracy by {what or 'design choice'}; a box over pairs and seeds, triangles are means"
            yield boxes(f"sweep-{own[0]}" if what else "variants", title, values, "accuracy (%)")


def _curves(name: str, what: str, runs: pd.DataFrame, measures: Mapping[str, str]) -> Picture | None:
    """Means by epoch over the pairs that all methods have, and their range over seeds."""
    runs = compared_everywhere(runs)
    if max((len(run.metrics) for run in runs.run), default=0) < 2:
        return None
    metrics: dict[str, list[list[dict[str, Any]]]] = {}
    for (method, _), own in runs.groupby(["label", "seed"], sort=False).run:
        means = []
        for number, epoch in enumerate(zip(*(run.metrics for run in own), strict=False)):
            known = [name for name in measures if all(name in line for line in epoch)]
            means.append({"epoch": number, **{name: fmean(line[name] for line in epoch) for name in known}})
        metrics.setdefault(plain(method), []).append(means)
    file = io.BytesIO()
    draw_curves(metrics, file, measures)
    pairs = len(runs[["target", "column"]].drop_duplicates())
    over = f", mean over the {pairs} pairs that every method has" if pairs > 1 else ""
    return Picture(name, f"{what} by epoch{over}; the band is the range over seeds", file.getvalue())


def _by_severity(runs: pd.DataFrame) -> Picture | None:
    if runs.severity.nunique() < 2:
        return None
    figure, panels = new_figure(2)
    for panel, quantity in zip(panels, (ACCURACY, ECE), strict=True):
        for (start, method, _), values in measured(runs, quantity).items():
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


def _with_predictions(runs: pd.DataFrame) -> tuple[list[Shown], list[str]]:
    """The predictions of the first run of each method and variant, and why others are not shown, one text each."""
    shown: dict[str, Shown] = {}
    notes: list[str] = []
    diverged: list[str] = []
    for one in runs.itertuples():
        name = plain(", ".join(filter(None, (one.label, one.variant))))
        try:
            saved = None if name in shown else read_predictions(one.run.path)
        except UserError as error:
            notes.append(f"left out of the figures: {error}")
            continue
        if saved is not None:
            title, features = f"{name}, {plain(one.pair)}, seed {one.seed}", saved.features
            # the squares of larger ones overflow
            if features is not None and not (np.abs(features.astype(np.float64)) < 1e15).all():
                diverged.append(f"left out of t-SNE, its features have diverged: {title}")
                saved = replace(saved, features=None)
            shown[name] = Shown(title, class_names(one.run, saved.logits.shape[1]), saved)
    return list(shown.values()), notes + diverged


def class_names(run: AdaptedRun, num_classes: int) -> list[str]:
    """Names of the classes as the run wrote them down, or their labels."""
    written = run.config["inputs"].get("classes")
    names = written if isinstance(written, list) and len(written) == num_classes else range(num_classes)
    return [plain(name if len(name) <= 24 else f"{name[:23]}…") for name in map(str, names)]


def _of_predictions(shown: Sequence[Shown]) -> Iterator[Picture | None]:
    labelled = [one for one in shown if one.saved.labels is not None]
    yield _votes(labelled)
    if compared := labelled[:MOST_PANELS]:
        title = f"Reliability diagrams, {evaluation.NUM_BINS} bins"
        yield _picture("reliability", title, _panels(compared, _draw_reliability))
    if few := [one for one in compared if len(one.classes) <= MOST_CLASSES]:
        largest = max(len(one.classes) for one in few)
        longest = max(len(name) for one in few for name in one.classes)
        figure = _panels(few, draw_confusion, max(4.0, 0.11 * largest + 0.06 * longest + 1.0))
        image, share = figure.axes[0].images[0], "share of the images of a class"
        figure.colorbar(image, ax=figure.axes, shrink=0.6, aspect=30, label=share)
        yield _picture("confusion", "Confusion matrices", figure)
    if featured := [one for one in shown[:MOST_PANELS] if min(getattr(one.saved.features, "shape", [0])) > 2]:
        unknown = [one.saved.labels is None for one in featured]
        colored = f"true class{', or by the predicted one without labels' if any(unknown) else ''}"
        title = f"t-SNE of the features, coloured by {'predicted class' if all(unknown) else colored}"
        figure = _panels(featured, _draw_tsne)
        draw_class_legend(figure, featured)
        yield _picture("tsne", title, figure)


def _votes(shown: Sequence[Shown]) -> Picture | None:
    figure, (panel,) = new_figure(1)
    for one in shown:
        votes = one.saved.votes
        if votes is not None and (votes == votes.round()).all() and votes.any():
            adapted = torch.from_numpy(votes.sum(1) > 0)
            counts = torch.from_numpy(votes.astype(np.float32))[adapted]
            curve = evaluation.accuracy_by_votes(counts, one.classed[adapted])
            panel.plot(curve.num_votes.numpy(), curve.accuracy.numpy(), marker=".", label=one.title)
    if not panel.lines:
        return None
    panel.set(xlabel="confident votes of an image", ylabel="accuracy of the temporal ensemble (%)")
    whole_ticks(panel.xaxis)
    panel.grid(alpha=0.3)
    panel.legend()
    return _picture("votes", "Accuracy of the temporal ensemble by number of confident votes", figure)


def _panels(shown: Sequence[Shown], draw: Callable[[Axes, Shown], None], side: float = 4.0) -> Figure:
    """A panel a run."""
    figure, panels = new_figure(len(shown), side)
    for panel, one in zip(panels, shown, strict=True):
        draw(panel, one)
        panel.set_title(one.title, fontsize=9)
    return figure


def _draw_reliability(panel: Axes, one: Shown) -> None:
    data = evaluation.reliability_diagram_data(one.probabilities, one.classed)
    width = 1 / len(data.counts)
    panel.bar(data.edges[:-1].numpy(), data.accuracy.nan_to_num(0).numpy(), width, align="edge", edgecolor="white")
    panel.plot([0, 1], [0, 1], color="black", linestyle=":")
    panel.text(0.03, 0.93, f"ECE {evaluation.expected_calibration_error(one.probabilities, one.classed):.3f}")
    panel.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy")


def draw_confusion(panel: Axes, one: Shown) -> None:
    """The share of the images of each class (rows) that are predicted as each class (columns)."""
    counts = evaluation.confusion_matrix(one.probabilities.argmax(1), one.classed, len(one.classes)).double()
    panel.imshow((counts / counts.sum(1, keepdim=True).clamp(min=1)).numpy(), cmap="Blues", vmin=0, vmax=1)
    size = 8 if len(one.classes) <= 12 else 6
    panel.set_xticks(range(len(one.classes)), one.classes, rotation=90, fontsize=size)
    panel.set_yticks(range(len(one.classes)), one.classes, fontsize=size)
    panel.set(xlabel="prediction", ylabel="label")


def _draw_tsne(panel: Axes, one: Shown) -> None:
    from sklearn.manifold import TSNE

    assert one.saved.features is not None
    chosen = np.random.default_rng(0).permutation(len(one.saved.logits))[:1000]
    perplexity = min(30.0, max(1.0, (len(chosen) - 1) / 3))
    points = TSNE(perplexity=perplexity, random_state=0).fit_transform(one.saved.features[chosen].astype(np.float32))
    classes = one.classed.numpy()[chosen]
    for number in np.unique(classes):
        across, up = points[classes == number].T
        panel.scatter(across, up, s=9, linewidths=0, **_look(int(number)))
    panel.set(xticks=[], yticks=[])


def _look(number: int) -> dict[str, Any]:
    """Colour and marker of a class; those of 100 classes differ."""
    return {"color": f"C{number % 10}", "marker": "o^sDvP*X<>"[number // 10 % 10]}


def draw_class_legend(figure: Figure, shown: Sequence[Shown]) -> None:
    """Names of the classes that are shown, below the panels, where there are not too many."""
    names = shown[0].classes
    present = sorted({number for one in shown for number in one.classed.tolist()})
    if present[-1] < MOST_CLASSES:
        entries = [Line2D([], [], linestyle="", label=names[number], **_look(number)) for number in present]
        columns = max(1, int(figure.get_figwidth() // (0.5 + 0.09 * max(map(len, names)))))
        place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0)}
        figure.legend(handles=entries, ncols=min(columns, len(entries)), fontsize=8, **place)
