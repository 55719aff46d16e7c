"""Numbers by epoch: accuracy and calibration, or what can be said without labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
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
    metrics: Mapping[str, Sequence[Metrics]], path: Path | BinaryIO, measures: Mapping[str, str] = WITH_LABELS
) -> None:
    """A figure with a panel a measure and a line a method: mean over seeds by epoch, and their range as a band.
    ``metrics`` is method -> one list of epoch metrics a seed; a method has no line where its epochs lack the
    measure."""
    from matplotlib.figure import Figure

    drawn = {name: {method: _by_epoch(seeds, name) for method, seeds in metrics.items()} for name in measures}
    drawn = {name: methods for name, methods in drawn.items() if any(methods.values())}
    figure = Figure(figsize=(2 + 4 * max(2, len(drawn)), 4), layout="constrained")
    entries: dict[str, Any] = {}
    for panel, (name, methods) in zip(figure.subplots(1, len(drawn), squeeze=False)[0], drawn.items(), strict=True):
        for number, (method, epochs) in enumerate(methods.items()):
            if epochs:
                color, values = f"C{number % 10}", epochs.values()
                (line,) = panel.plot(list(epochs), list(map(fmean, values)), marker=".", color=color)
                band = list(map(min, values)), list(map(max, values))
                panel.fill_between(list(epochs), *band, color=color, alpha=0.15, linewidth=0)
                entries.setdefault(method, line)
        panel.set_xlabel("epoch")
        whole_ticks(panel.xaxis)
        panel.set_ylabel(measures[name])
        panel.grid(alpha=0.3)
    figure.legend(entries.values(), entries.keys(), loc="outside right center")
    figure.savefig(path, dpi=150, format="png")


def whole_ticks(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _by_epoch(seeds: Sequence[Metrics], name: str) -> dict[int, list[float]]:
    """Epoch -> the number of each seed, where all seeds have it."""
    epochs: dict[int, list[float]] = {}
    for line in (line for seed in seeds for line in seed if name in line):
        epochs.setdefault(line["epoch"], []).append(line[name])
    return {epoch: epochs[epoch] for epoch in sorted(epochs) if len(epochs[epoch]) == len(seeds)}
