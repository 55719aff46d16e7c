"""Figures of runs; each is drawn only if the runs hold what it shows."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from tllib_ancon import selection
from tllib_ancon.evaluation import NUM_BINS
from tllib_ancon.report.curves import draw_curves
from tllib_ancon.report.runs import SELECTED, START, AdaptedRun, compared_everywhere
from tllib_ancon.report.tables import SOURCE_ONLY, accuracies_by_criterion, usual_settings, variant
from tllib_ancon.training.saved_predictions import SavedPredictions

SWEPT = {"smoothing": "λ", "beta": "β", "schedule": "schedule of λ"}
MOST_PANELS, MOST_IN_A_ROW = 9, 3
MOST_POINTS = 1500
MOST_CLASSES = 100


@dataclass(frozen=True)
class Picture:
    """A figure as PNG: a short name for its file, and what it shows."""

    name: str
    title: str
    png: bytes


def figures(runs: Sequence[AdaptedRun], varied: Sequence[str]) -> list[Picture]:
    """All figures that these runs can fill.

    Args:
        runs: of one table
        varied: settings that the table compares
    """
    drawn = [*_from_metrics(runs, varied), *_from_predictions(runs, varied)]
    return [picture for picture in drawn if picture is not None]


def _from_metrics(runs: Sequence[AdaptedRun], varied: Sequence[str]) -> Iterator[Picture | None]:
    if not varied:
        yield _curves(runs)
        yield _by_severity(runs)
        yield _selection_boxes(runs)
    swept = [name for name in SWEPT if name in varied]
    for name in swept:
        yield _sweep_boxes(runs, name, swept)
    if varied and not swept:
        yield _variant_boxes(runs, varied)


def _curves(runs: Sequence[AdaptedRun]) -> Picture | None:
    runs = compared_everywhere(runs)
    if not runs or max(len(run.metrics) for run in runs) < 2:
        return None
    by_method: dict[str, dict[int, list[AdaptedRun]]] = {}
    for run in runs:
        by_method.setdefault(_label(run), {}).setdefault(run.seed, []).append(run)
    metrics = {method: [_mean_by_epoch(seed) for seed in seeds.values()] for method, seeds in by_method.items()}
    file = io.BytesIO()
    draw_curves(metrics, file)
    columns = len({run.target + run.column for run in runs})
    over = f", mean over the {columns} pairs that every method has" if columns > 1 else ""
    return Picture("epochs", f"Accuracy and ECE by epoch{over}; the band is the range over seeds", file.getvalue())


def _mean_by_epoch(runs: Sequence[AdaptedRun]) -> list[dict[str, float]]:
    lines = zip(*(run.metrics for run in runs), strict=True)
    return [{name: fmean(line[name] for line in epoch) for name in ("accuracy", "ece")} for epoch in lines]


def _by_severity(runs: Sequence[AdaptedRun]) -> Picture | None:
    severities = sorted({run.severity for run in runs if run.severity is not None})
    if len(severities) < 2:
        return None
    values: dict[str, dict[int, list[Mapping[str, Any]]]] = {}
    for run in runs:
        for label, which in ((SOURCE_ONLY, START), (_label(run), SELECTED)):
            values.setdefault(label, {}).setdefault(run.severity or 0, []).append(run.measured(which))
    figure, panels = _new(2)
    for panel, (name, title) in zip(panels, (("accuracy", "accuracy (%)"), ("ece", _ECE)), strict=True):
        for label, by_severity in values.items():
            means = [fmean(line[name] for line in by_severity[level]) for level in sorted(by_severity)]
            panel.plot(sorted(by_severity), means, marker="o", label=label)
        panel.set_xlabel("severity")
        panel.set_xticks(severities)
        panel.set_ylabel(title)
        panel.grid(alpha=0.3)
    panels[0].legend()
    return Picture("severity", "Accuracy and ECE by severity, mean over corruptions and seeds", _png(figure))


def _selection_boxes(runs: Sequence[AdaptedRun]) -> Picture | None:
    spreads: dict[str, list[float]] = {}
    for run in compared_everywhere([run for run in runs if len(run.metrics) > 2]):
        spreads.setdefault(_label(run), []).append(selection.selection_spread(accuracies_by_criterion(run)))
    title = "Largest change of the accuracy between criteria that select the epoch; a box over runs"
    return _boxes("selection", title, spreads, "change of accuracy (points)") if _enough(spreads) else None


def _sweep_boxes(runs: Sequence[AdaptedRun], name: str, swept: Sequence[str]) -> Picture | None:
    others = [other for other in swept if other != name]
    usual = usual_settings(runs, others)
    values: dict[str, list[float]] = {}
    for run in sorted(runs, key=lambda run: str(run.config[name])):
        if all(run.config[other] == usual[other] for other in others):
            values.setdefault(_plain(str(run.config[name])), []).append(run.measured(SELECTED)["accuracy"])
    title = f"Accuracy by {SWEPT[name]}; a box over pairs and seeds, triangles are means"
    return _boxes(f"sweep-{name}", title, values, "accuracy (%)") if _enough(values) and len(values) > 1 else None


def _variant_boxes(runs: Sequence[AdaptedRun], varied: Sequence[str]) -> Picture | None:
    usual = usual_settings(runs, varied)
    values: dict[str, list[float]] = {}
    for run in sorted(runs, key=lambda run: bool(variant(run, usual))):
        values.setdefault(_plain(variant(run, usual) or run.method), []).append(run.measured(SELECTED)["accuracy"])
    title = "Accuracy by design choice; a box over pairs and seeds, triangles are means"
    return _boxes("variants", title, values, "accuracy (%)") if _enough(values) else None


def _enough(values: Mapping[str, Sequence[float]]) -> bool:
    return any(len(group) > 1 for group in values.values())


def _boxes(name: str, title: str, values: Mapping[str, Sequence[float]], axis: str) -> Picture:
    figure, (panel,) = _new(1)
    panel.boxplot(list(values.values()), showmeans=True)
    crowded = sum(map(len, values)) > 60
    panel.set_xticks(
        range(1, len(values) + 1), list(values), rotation=60 if crowded else 0, ha="right" if crowded else "center"
    )
    panel.set_ylabel(axis)
    panel.grid(alpha=0.3, axis="y")
    return Picture(name, title, _png(figure))


def _from_predictions(runs: Sequence[AdaptedRun], varied: Sequence[str]) -> Iterator[Picture | None]:
    usual = usual_settings(runs, varied)
    shown: dict[str, AdaptedRun] = {}
    for run in runs:
        if run.predictions is not None:
            shown.setdefault(", ".join(filter(None, (_label(run), _plain(variant(run, usual))))), run)
    labelled = {label: run for label, run in shown.items() if run.predictions.labels is not None}
    yield _votes({label: run for label, run in labelled.items() if run.predictions.votes is not None})
    labelled = dict(list(labelled.items())[:MOST_PANELS])
    if not labelled:
        return
    yield _panels("reliability", f"Reliability diagrams, {NUM_BINS} bins", labelled, _draw_reliability)
    if next(iter(labelled.values())).predictions.logits.shape[1] <= MOST_CLASSES:
        yield _panels("confusion", "Confusion matrices: label by row, prediction by column", labelled, _draw_confusion)
    with_features = {label: run for label, run in labelled.items() if run.predictions.features is not None}
    yield _panels("tsne", "t-SNE of the features, coloured by true class", with_features, _draw_tsne)


def _votes(runs: Mapping[str, AdaptedRun]) -> Picture | None:
    import torch

    from tllib_ancon.evaluation import accuracy_by_votes

    if not runs:
        return None
    figure, (panel,) = _new(1)
    for label, run in runs.items():
        saved = run.predictions
        adapted = saved.votes.sum(1) > 0
        whole = (saved.votes == saved.votes.round()).all()
        if whole and adapted.any():
            votes = torch.from_numpy(saved.votes[adapted].astype(np.float32))
            curve = accuracy_by_votes(votes, torch.from_numpy(saved.labels[adapted].astype(np.int64)))
            panel.plot(curve.num_votes.numpy(), curve.accuracy.numpy(), marker=".", label=f"{label}, {_place(run)}")
    panel.set_xlabel("confident votes of an image")
    panel.set_ylabel("accuracy of the temporal ensemble (%)")
    panel.grid(alpha=0.3)
    panel.legend()
    return Picture("votes", "Accuracy of the temporal ensemble by number of confident votes", _png(figure))


def _panels(
    name: str, title: str, runs: Mapping[str, AdaptedRun], draw: Callable[[Any, SavedPredictions], None]
) -> Picture | None:
    if not runs:
        return None
    figure, panels = _new(len(runs), side=4)
    for panel, (label, run) in zip(panels, runs.items(), strict=True):
        draw(panel, run.predictions)
        panel.set_title(f"{label}, {_place(run)}", fontsize=9)
    return Picture(name, title, _png(figure))


def _draw_reliability(panel: Any, saved: SavedPredictions) -> None:
    import torch

    from tllib_ancon.evaluation import reliability_diagram_data

    probabilities = torch.from_numpy(saved.logits.astype(np.float32)).softmax(1)
    data = reliability_diagram_data(probabilities, torch.from_numpy(saved.labels.astype(np.int64)))
    width = 1 / len(data.counts)
    panel.bar(data.edges[:-1].numpy(), data.accuracy.nan_to_num(0).numpy(), width, align="edge", edgecolor="white")
    panel.plot([0, 1], [0, 1], color="black", linestyle=":")
    panel.text(0.03, 0.93, f"ECE {100 * data.expected_calibration_error:.1f} %")
    panel.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy")


def _draw_confusion(panel: Any, saved: SavedPredictions) -> None:
    import torch

    from tllib_ancon.evaluation import confusion_matrix

    labels = torch.from_numpy(saved.labels.astype(np.int64))
    predictions = torch.from_numpy(saved.logits).argmax(1)
    counts = confusion_matrix(predictions, labels, saved.logits.shape[1]).double()
    panel.imshow((counts / counts.sum(1, keepdim=True).clamp(min=1)).numpy(), cmap="Blues", vmin=0, vmax=1)
    panel.set(xlabel="prediction", ylabel="label")


def _draw_tsne(panel: Any, saved: SavedPredictions) -> None:
    from sklearn.manifold import TSNE

    chosen = np.random.default_rng(0).permutation(len(saved.logits))[:MOST_POINTS]
    perplexity = min(30.0, max(1.0, (len(chosen) - 1) / 3))
    points = TSNE(perplexity=perplexity, random_state=0).fit_transform(saved.features[chosen].astype(np.float32))
    panel.scatter(*points.T, c=saved.labels[chosen], cmap="tab20", s=6, linewidths=0)
    panel.set(xticks=[], yticks=[])


_ECE = f"ECE ({NUM_BINS} bins)"


def _label(run: AdaptedRun) -> str:
    return _plain(run.method if run.start in ("erm", "imagenet", "checkpoint") else f"{run.start}: {run.method}")


def _place(run: AdaptedRun) -> str:
    return _plain(f"{run.column}{'' if run.severity is None else f'/{run.severity}'}, seed {run.seed}")


def _plain(text: str) -> str:
    """Text that matplotlib does not read as mathematics."""
    return text.replace("$", r"\$")


def _new(panels: int, side: float = 5.0) -> tuple[Any, Sequence[Any]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(panels, MOST_IN_A_ROW)
    rows = -(-panels // columns)
    figure = Figure(figsize=(max(6.0, side * columns), max(4.0, side * rows)), layout="constrained")
    FigureCanvasAgg(figure)
    places = figure.subplots(rows, columns, squeeze=False).flatten()
    for unused in places[panels:]:
        unused.remove()
    return figure, places[:panels]


def _png(figure: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, dpi=110, format="png")
    return file.getvalue()
