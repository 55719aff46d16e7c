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
    "infomax": "InfoMax of the images held out (nats)",
    "votes": "share of images that vote",
    "threshold": "threshold δ",
}
"""Measure -> title of its axis."""


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
    figure = Figure(figsize=(2 + 4 * max(2, len(curves)), 4), layout="constrained")
    lines: dict[str, Any] = {}
    for place, (measure, of_measure) in enumerate(curves.items(), start=1):
        panel = figure.add_subplot(1, len(curves), place)
        panel.set(xlabel="epoch", ylabel=measures[measure])
        lines = {**lines, **_draw_methods(panel, list(seeds_of_method), of_measure), **lines}
        whole_ticks(panel.xaxis)
        panel.grid(alpha=0.3)
    figure.legend(lines.values(), lines.keys(), loc="outside right center")
    figure.savefig(path, dpi=150, format="png")


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
            color = f"C{number % 10}"
            epochs = list(curve)
            (lines[method],) = panel.plot(epochs, list(map(fmean, curve.values())), marker=".", color=color)
            lowest = list(map(min, curve.values()))
            highest = list(map(max, curve.values()))
            panel.fill_between(epochs, lowest, highest, color=color, alpha=0.15, linewidth=0)
    return lines


def whole_ticks(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
