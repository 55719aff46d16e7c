"""Numbers by epoch: accuracy and calibration, or scores without labels."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, BinaryIO

from tllib_ancon.runtime.extras import require
from tllib_ancon.runtime.types import Metrics

Epochs = Sequence[Metrics]
"""The numbers of each epoch of a run."""

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
    runs: Iterable[tuple[str, int, Epochs]], path: Path | BinaryIO, measures: Mapping[str, str] = WITH_LABELS
) -> None:
    """A panel a measure, a line a method: the mean over seeds by epoch, and their range as a band."""
    require("a picture of the epochs", "matplotlib", extra="report")
    from matplotlib.figure import Figure  # here: commands that draw nothing start sooner

    seeds_of_method: dict[str, list[tuple[int, Epochs]]] = {}
    for method, seed, metrics in runs:
        seeds_of_method.setdefault(method, []).append((seed, metrics))
    curves = _curves_by_measure(seeds_of_method, measures)
    rows = max(1, math.ceil(len(curves) / PANELS_IN_A_ROW))
    columns = min(len(curves), PANELS_IN_A_ROW)
    figure = Figure(figsize=(WIDTH, 0.7 + 2.8 * rows), layout="constrained")
    figure.suptitle(_result(curves), fontsize=TITLE_SIZE)
    lines: dict[str, Any] = {}
    for place, (measure, curve_of_method) in enumerate(curves.items(), start=1):
        panel = figure.add_subplot(rows, columns, place)
        panel.set(xlabel="epoch", ylabel=measures[measure])
        for number, method in enumerate(seeds_of_method):
            if method in curve_of_method:
                line = _draw_curve(panel, curve_of_method[method], number)
                lines.setdefault(method, line)
        whole_ticks(panel.xaxis)
        panel.grid(alpha=0.3)
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=DPI, format="png")


def _curves_by_measure(
    seeds_of_method: Mapping[str, Sequence[tuple[int, Epochs]]], measures: Iterable[str]
) -> dict[str, dict[str, Curve]]:
    """Measure -> method -> its curve, without measures and methods that have no numbers."""
    curves: dict[str, dict[str, Curve]] = {}
    for measure in measures:
        for method, seeds in seeds_of_method.items():
            curve = _curve(seeds, measure)
            if curve:
                curves.setdefault(measure, {})[method] = curve
    return curves


def _result(curves: Mapping[str, Mapping[str, Curve]]) -> str:
    """What a figure shows, by its first measure: how the method that ends highest begins and ends."""
    if not curves:
        return "no numbers by epoch"
    measure, curve_of_method = next(iter(curves.items()))
    ends = {method: fmean(curve[max(curve)]) for method, curve in curve_of_method.items()}
    best = max(ends, key=ends.__getitem__)
    curve = curve_of_method[best]
    beginning = fmean(curve[min(curve)])
    change = f"{beginning:.3g} to {ends[best]:.3g}"
    if measure == "accuracy":
        change = f"{beginning:.1f} to {ends[best]:.1f} %"
    name = measure.replace("infomax", "InfoMax")
    if len(ends) == 1:
        return f"{best}: {name} from {change}"
    return f"{best} ends with the highest {name}: {change}"


def _curve(runs: Sequence[tuple[int, Epochs]], measure: str) -> Curve:
    """The curve of a method, without epochs that a seed lacks; several runs of a seed count by their mean."""
    values: dict[tuple[int, int], list[float]] = {}
    for seed, metrics in runs:
        for numbers in metrics:
            value = numbers.get(measure)
            if value is None:
                value = math.nan
            values.setdefault((numbers["epoch"], seed), []).append(value)
    seeds = {seed for seed, _ in runs}
    curve = {}
    for epoch in sorted({epoch for epoch, _ in values}):
        means = [fmean(values.get((epoch, seed), [math.nan])) for seed in seeds]
        if not any(map(math.isnan, means)):
            curve[epoch] = means
    return curve


def _draw_curve(panel: Any, curve: Curve, number: int) -> Any:
    """Draw the curve of the method of this number; returns its line."""
    color = COLOURS[number % len(COLOURS)]
    marker = MARKERS[number % len(MARKERS)]
    epochs = list(curve)
    means = list(map(fmean, curve.values()))
    (line,) = panel.plot(epochs, means, marker=marker, markersize=3, color=color)
    lowest = list(map(min, curve.values()))
    highest = list(map(max, curve.values()))
    panel.fill_between(epochs, lowest, highest, color=color, alpha=0.15, linewidth=0)
    return line


def whole_ticks(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
