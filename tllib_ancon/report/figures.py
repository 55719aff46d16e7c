"""Figures of the numbers that runs wrote down; each is drawn only if the runs hold what it shows."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from tllib_ancon.report import prediction_figures
from tllib_ancon.report.canvas import Picture, boxes, new_figure, picture, plain
from tllib_ancon.report.curves import WITH_LABELS, WITHOUT_LABELS, draw_curves
from tllib_ancon.report.prediction_figures import label
from tllib_ancon.report.runs import SELECTED, START, AdaptedRun, compared_everywhere
from tllib_ancon.report.tables import SOURCE_ONLY, accuracies_by_criterion, paper_spread, usual_settings, variant
from tllib_ancon.selection import PAPER_CRITERIA

SWEPT = {"smoothing": "λ", "beta": "β", "schedule": "schedule of λ"}


def figures(runs: Sequence[AdaptedRun], varied: Sequence[str]) -> tuple[list[Picture], list[str]]:
    """All figures that these runs can fill, and which predictions could not be shown, one text each.

    Args:
        runs: of one table
        varied: settings that the table compares
    """
    labelled = [run for run in runs if run.labelled]
    unlabelled = [run for run in runs if not run.labelled]
    from_metrics = [*_from_metrics(labelled, varied), None if varied else _curves(unlabelled, WITHOUT_LABELS)]
    from_predictions, notes = prediction_figures.figures(runs, varied)
    return [found for found in (*from_metrics, *from_predictions) if found is not None], notes


def _from_metrics(runs: Sequence[AdaptedRun], varied: Sequence[str]) -> Iterator[Picture | None]:
    if not varied:
        yield _curves(runs, WITH_LABELS)
        yield _by_severity(runs)
        yield _selection_boxes(runs)
    varied = [name.replace("-", "_") for name in varied]
    swept = [name for name in SWEPT if name in varied]
    for name in swept:
        yield _sweep_boxes(_otherwise_usual(runs, varied, [name]), name)
    designs = [name for name in varied if name not in SWEPT]
    if designs:
        yield _variant_boxes(_otherwise_usual(runs, varied, designs), usual_settings(runs, designs))


def _otherwise_usual(runs: Sequence[AdaptedRun], varied: Sequence[str], shown: Sequence[str]) -> list[AdaptedRun]:
    """The runs that leave the usual settings in what is ``shown`` alone."""
    usual = usual_settings(runs, [name for name in varied if name not in shown])
    return [run for run in runs if not variant(run, usual)]


def _curves(runs: Sequence[AdaptedRun], measures: Mapping[str, str]) -> Picture | None:
    runs = compared_everywhere(runs)
    if not runs or max(len(run.metrics) for run in runs) < 2:
        return None
    by_method: dict[str, dict[int, list[AdaptedRun]]] = {}
    for run in runs:
        by_method.setdefault(label(run), {}).setdefault(run.seed, []).append(run)
    metrics = {
        method: [_mean_by_epoch(seed, measures) for seed in seeds.values()] for method, seeds in by_method.items()
    }
    file = io.BytesIO()
    draw_curves(metrics, file, measures)
    columns = len({run.target + run.column for run in runs})
    over = f", mean over the {columns} pairs that every method has" if columns > 1 else ""
    name, what = (
        ("epochs", "Accuracy and ECE")
        if measures is WITH_LABELS
        else ("epochs-without-labels", "InfoMax, votes and threshold")
    )
    return Picture(name, f"{what} by epoch{over}; the band is the range over seeds", file.getvalue())


def _mean_by_epoch(runs: Sequence[AdaptedRun], measures: Mapping[str, str]) -> list[dict[str, float]]:
    lines = zip(*(run.metrics for run in runs), strict=False)
    return [
        {
            "epoch": number,
            **{name: fmean(line[name] for line in epoch) for name in measures if all(name in line for line in epoch)},
        }
        for number, epoch in enumerate(lines)
    ]


def _by_severity(runs: Sequence[AdaptedRun]) -> Picture | None:
    severities = sorted({run.severity for run in runs if run.severity is not None})
    if len(severities) < 2:
        return None
    values: dict[str, dict[int, list[Mapping[str, Any]]]] = {}
    for run in runs:
        for title, which in ((SOURCE_ONLY, START), (label(run), SELECTED)):
            values.setdefault(title, {}).setdefault(run.severity or 0, []).append(run.measured(which))
    figure, panels = new_figure(2)
    for panel, (name, axis) in zip(panels, WITH_LABELS.items(), strict=True):
        for title, by_severity in values.items():
            means = [fmean(line[name] for line in by_severity[level]) for level in sorted(by_severity)]
            panel.plot(sorted(by_severity), means, marker="o", label=title)
        panel.set_xlabel("severity")
        panel.set_xticks(severities)
        panel.set_ylabel(axis)
        panel.grid(alpha=0.3)
    panels[0].legend()
    return picture("severity", "Accuracy and ECE by severity, mean over corruptions and seeds", figure)


def _selection_boxes(runs: Sequence[AdaptedRun]) -> Picture | None:
    """None where one of the runs lacks a chosen epoch on record: the others would be those whose criteria agree."""
    chosen = [
        (label(run), accuracies_by_criterion(run))
        for run in compared_everywhere([run for run in runs if len(run.metrics) > 2])
    ]
    if not all(set(PAPER_CRITERIA) <= accuracies.keys() for _, accuracies in chosen):
        return None
    spreads: dict[str, list[float]] = {}
    for name, accuracies in chosen:
        spreads.setdefault(name, []).append(paper_spread(accuracies))
    title = "Largest change of the accuracy between the paper's criteria that select the epoch; a box over runs"
    return boxes("selection", title, spreads, "change of accuracy (points)") if _enough(spreads) else None


def _sweep_boxes(runs: Sequence[AdaptedRun], name: str) -> Picture | None:
    values: dict[str, list[float]] = {}
    for run in sorted(runs, key=lambda run: str(run.config.get(name))):
        values.setdefault(plain(str(run.config.get(name))), []).append(run.measured(SELECTED)["accuracy"])
    title = f"Accuracy by {SWEPT[name]}; a box over pairs and seeds, triangles are means"
    return boxes(f"sweep-{name}", title, values, "accuracy (%)") if _enough(values) and len(values) > 1 else None


def _variant_boxes(runs: Sequence[AdaptedRun], usual: Mapping[str, Any]) -> Picture | None:
    values: dict[str, list[float]] = {}
    for run in sorted(runs, key=lambda run: bool(variant(run, usual))):
        values.setdefault(plain(variant(run, usual) or run.method), []).append(run.measured(SELECTED)["accuracy"])
    title = "Accuracy by design choice; a box over pairs and seeds, triangles are means"
    return boxes("variants", title, values, "accuracy (%)") if _enough(values) else None


def _enough(values: Mapping[str, Sequence[float]]) -> bool:
    return any(len(group) > 1 for group in values.values())
