"""Accuracy and calibration by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

Metrics = Sequence[Mapping[str, Any]]


def draw_curves(metrics: Mapping[str, Sequence[Metrics]], path: Path | BinaryIO) -> None:
    """A picture with accuracy and ECE by epoch, a line a method: mean over seeds, and their range as a band.

    Args:
        metrics: method -> one list of epoch metrics a seed, all of the same length
        path (Path or file): the PNG to write
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2)
    for panel, (name, label) in zip(panels, (("accuracy", "accuracy (%)"), ("ece", "ECE (15 bins)")), strict=True):
        for method, seeds in metrics.items():
            _draw_band(panel, method, [[line[name] for line in seed] for seed in seeds])
        panel.set_xlabel("epoch")
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.set_ylabel(label)
        panel.grid(alpha=0.3)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
    figure.savefig(path, dpi=150, format="png")


def _draw_band(panel: Any, label: str, values: list[list[float]]) -> None:
    by_epoch = list(zip(*values, strict=True))
    epochs = range(len(by_epoch))
    (line,) = panel.plot(epochs, [sum(seeds) / len(seeds) for seeds in by_epoch], label=label)
    panel.fill_between(
        epochs, [min(s) for s in by_epoch], [max(s) for s in by_epoch], color=line.get_color(), alpha=0.15
    )
