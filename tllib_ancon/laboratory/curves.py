"""Numbers by epoch: accuracy and calibration, or scores without labels."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tllib_ancon.runtime.extras import require
from tllib_ancon.runtime.types import Metrics

Epochs = Sequence[Metrics]
"""The numbers of each epoch of a run."""

WITH_LABELS = {"accuracy": "accuracy (%)", "ece": "ECE (15 bins)"}
WITHOUT_LABELS = {"infomax": "InfoMax (nats)", "votes": "share of images that vote"}
"""Measure -> title of its axis."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
"""Colours that colour-blind readers tell apart (Okabe and Ito, 2008)."""
WIDTH = 7.0
"""Inches. Letters of a figure of this width can be read if it is shown 600 pixels wide."""
DPI = 150


def draw_curves(
    runs: Iterable[tuple[str, Epochs]], path: Path | BinaryIO, measures: Mapping[str, str] = WITH_LABELS
) -> None:
    """A panel a measure, a line a method: the mean over its runs by epoch, and their range as a band."""
    require("a picture of the epochs", "matplotlib", extra="report")
    from matplotlib.figure import Figure  # here: commands that draw nothing start sooner
    from matplotlib.ticker import MaxNLocator

    runs_of_method: dict[str, list[Epochs]] = {}
    for method, epochs in runs:
        runs_of_method.setdefault(method, []).append(epochs)
    figure = Figure(figsize=(WIDTH, 3.3), layout="constrained")
    panels = figure.subplots(1, len(measures))
    for panel, (measure, title) in zip(panels, measures.items(), strict=True):
        panel.set_prop_cycle(color=COLOURS)
        panel.set(xlabel="epoch", ylabel=title)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        panel.grid(alpha=0.3)
        for method, of_method in runs_of_method.items():
            _draw_curve(panel, method, of_method, measure)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=DPI, format="png")


def _draw_curve(panel: Any, method: str, runs: Sequence[Epochs], measure: str) -> None:
    """Of the epochs that every run has."""
    epochs = [numbers["epoch"] for numbers in min(runs, key=len)]
    values = np.full((len(runs), len(epochs)), np.nan)
    for row, numbers_of_epochs in zip(values, runs, strict=True):
        row[:] = [numbers.get(measure) for numbers in numbers_of_epochs[: len(epochs)]]
    (line,) = panel.plot(epochs, values.mean(0), marker="o", markersize=3, label=method)
    panel.fill_between(epochs, values.min(0), values.max(0), color=line.get_color(), alpha=0.15, linewidth=0)
