"""Numbers by epoch: accuracy and calibration, or scores without labels."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

Metrics = Sequence[Mapping[str, Any]]

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
    import pandas as pd  # here, as matplotlib: commands that draw nothing start sooner
    from matplotlib.figure import Figure

    epochs = pd.concat([pd.DataFrame(metrics).assign(method=method, seed=seed) for method, seed, metrics in runs])
    epochs = epochs.reindex(columns=["method", "epoch", "seed", *measures])
    means = epochs.groupby(["method", "epoch", "seed"], sort=False).mean(skipna=False)
    drawn = means.columns[means.notna().any()]
    figure = Figure(figsize=(2 + 4 * max(2, len(drawn)), 4), layout="constrained")
    lines: dict[str, Any] = {}
    for place, name in enumerate(drawn, start=1):
        panel = figure.add_subplot(1, len(drawn), place)
        panel.set(xlabel="epoch", ylabel=measures[name])
        lines = {**lines, **_draw_methods(panel, means[name]), **lines}
        whole_ticks(panel.xaxis)
        panel.grid(alpha=0.3)
    figure.legend(lines.values(), lines.keys(), loc="outside right center")
    figure.savefig(path, dpi=150, format="png")


def _draw_methods(panel: Any, means: Any) -> dict[str, Any]:
    """The line of each method, by a series with the levels method, epoch and seed."""
    lines = {}
    for number, method in enumerate(means.index.unique("method")):
        seeds = means[method].unstack("seed").dropna()
        if len(seeds):
            color = f"C{number % 10}"
            (lines[method],) = panel.plot(seeds.index, seeds.mean(axis=1), marker=".", color=color)
            panel.fill_between(seeds.index, seeds.min(axis=1), seeds.max(axis=1), color=color, alpha=0.15, linewidth=0)
    return lines


def whole_ticks(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
