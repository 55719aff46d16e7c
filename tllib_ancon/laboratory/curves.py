"""Numbers by epoch: accuracy and calibration, or scores without labels."""

from collections.abc import Iterable, Mapping, Sequence
from math import isnan, nan
from pathlib import Path
from statistics import fmean
from typing import Any, BinaryIO

from tllib_ancon.runtime.extras import require

Metrics = Sequence[Mapping[str, Any]]

Curve = Mapping[int, Sequence[float]]
"""Epoch -> the value of each seed."""

WITH_LABELS = {"accuracy": "accuracy (%)", "ece": "ECE (15 bins)"}
WITHOUT_LABELS = {
    "infomax": "InfoMax (nats)",
    "votes": "share of images that vote",
    "threshold": "threshold δ",
}
"""Measure -> title of its axis."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
"""Colours that colour-blind readers tell apart (Okabe and Ito, 2008)."""
MARKERS = "osD^vPX*"
WIDTH = 7.0
"""Inches. Letters of a figure of this width can be read if it is shown 600 pixels wide."""
DPI = 150
TITLE_SIZE = 11
PANELS_IN_A_ROW = 2


def draw_curves(
    runs: Iterable[tuple[str, int, Metrics]], path: Path | BinaryIO, measures: Mapping[str, str] = WITH_LABELS
) -> None:
    """A panel a measure, a line a method: the mean over seeds by epoch, and their range as a band."""
    require("a picture of the epochs", "matplotlib", extra="report")
    from matplotlib.figure import Figure  # here: commands that draw nothing start sooner

    seeds_of_method: dict[str, list[tuple[int, Metrics]]] = {}
    for method, seed, metrics in runs:
        seeds_of_method.setdefault(method, []).append((seed, metrics))
    curves: dict[str, list[Curve]] = {}
    for measure in measures:
        of_measure = [_curve(seeds, measure) for seeds in seeds_of_method.values()]
        if any(of_measure):
            curves[measure] = of_measure
    columns = min(max(1, len(curves)), PANELS_IN_A_ROW)
    rows = -(-len(curves) // columns)
    figure = Figure(figsize=(WIDTH, 0.7 + 2.8 * max(1, rows)), layout="constrained")
    figure.suptitle(_result(list(seeds_of_method), curves), fontsize=TITLE_SIZE)
    lines: dict[str, Any] = {}
    for place, (measure, of_measure) in enumerate(curves.items(), start=1):
        panel = figure.add_subplot(rows, columns, place)
        panel.set(xlabel="epoch", ylabel=measures[measure])
        lines = {**lines, **_draw_methods(panel, list(seeds_of_method), of_measure), **lines}
        whole_ticks(panel.xaxis)
        panel.grid(alpha=0.3)
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=DPI, format="png")


def _result(methods: Sequence[str], curves: Mapping[str, Sequence[Curve]]) -> str:
    """What a figure shows, by its first measure: how the method that ends highest begins and ends."""
    for measure, of_measure in curves.items():
        ends = {method: fmean(curve[max(curve)]) for method, curve in zip(methods, of_measure, strict=True) if curve}
        best = max(ends, key=ends.__getitem__)
        curve = of_measure[methods.index(best)]
        change = f"{fmean(curve[min(curve)]):.3g} to {ends[best]:.3g}"
        name = measure.replace("infomax", "InfoMax")
        if measure == "accuracy":
            change = f"{fmean(curve[min(curve)]):.1f} to {ends[best]:.1f} %"
        if len(ends) == 1:
            return f"{best}: {name} from {change}"
        return f"{best} ends with the highest {name}: {change}"
    return "no numbers by epoch"


def _curve(runs: Sequence[tuple[int, Metrics]], measure: str) -> Curve:
    """The curve of a method, without epochs that a seed lacks; several runs of a seed count by their mean."""
    values: dict[tuple[int, int], list[float]] = {}
    for seed, metrics in runs:
        for numbers in metrics:
            value = numbers.get(measure)
            values.setdefault((numbers["epoch"], seed), []).append(nan if value is None else value)
    seeds = {seed for seed, _ in runs}
    curve = {}
    for epoch in sorted({epoch for epoch, _ in values}):
        means = [fmean(values.get((epoch, seed), [nan])) for seed in seeds]
        if not any(map(isnan, means)):
            curve[epoch] = means
    return curve


def _draw_methods(panel: Any, methods: Sequence[str], curves: Sequence[Curve]) -> dict[str, Any]:
    """The line of each method that has a curve."""
    lines = {}
    for number, (method, curve) in enumerate(zip(methods, curves, strict=True)):
        if curve:
            color = COLOURS[number % len(COLOURS)]
            marker = MARKERS[number % len(MARKERS)]
            epochs = list(curve)
            means = list(map(fmean, curve.values()))
            (lines[method],) = panel.plot(epochs, means, marker=marker, markersize=3, color=color)
            lowest = list(map(min, curve.values()))
            highest = list(map(max, curve.values()))
            panel.fill_between(epochs, lowest, highest, color=color, alpha=0.15, linewidth=0)
    return lines


def whole_ticks(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
