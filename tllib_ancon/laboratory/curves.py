"""Numbers by epoch: accuracy and calibration, or scores without labels."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, BinaryIO

from tllib_ancon.runtime.extras import require
from tllib_ancon.runtime.types import Metrics

Epochs = Sequence[Metrics]
"""The numbers of each epoch of a run."""

WITH_LABELS = {"accuracy": "accuracy (%)", "ece": "ECE (15 bins)"}
WITHOUT_LABELS = {"infomax": "InfoMax (nats)", "votes": "share of images that vote"}
"""Measure -> title of its axis."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
"""Colours that colour-blind readers tell apart (Okabe and Ito, 2008)."""
MARKERS = "osD^vPX*"
WIDTH = 7.0
"""Inches. Letters of a figure of this width can be read if it is shown 600 pixels wide."""
DPI = 150
TITLE_SIZE = 11


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
        panel.set_prop_cycle(color=COLOURS, marker=[*MARKERS])
        for method, of_method in runs_of_method.items():
            _draw_curve(panel, method, _values_by_epoch(of_method, measure))
        panel.set(xlabel="epoch", ylabel=title)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        panel.grid(alpha=0.3)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=DPI, format="png")


def _values_by_epoch(runs: Sequence[Epochs], measure: str) -> dict[int, list[float]]:
    """Epoch -> the value of each run, without epochs that a run lacks."""
    values: dict[int, list[float]] = {}
    for epochs in runs:
        for numbers in epochs:
            if numbers.get(measure) is not None:
                values.setdefault(numbers["epoch"], []).append(numbers[measure])
    return {epoch: of_runs for epoch, of_runs in sorted(values.items()) if len(of_runs) == len(runs)}


def _draw_curve(panel: Any, method: str, values: Mapping[int, Sequence[float]]) -> None:
    epochs = list(values)
    (line,) = panel.plot(epochs, list(map(fmean, values.values())), markersize=3, label=method)
    lowest = list(map(min, values.values()))
    highest = list(map(max, values.values()))
    panel.fill_between(epochs, lowest, highest, color=line.get_color(), alpha=0.15, linewidth=0)
