"""Two figures of finished runs, as PNG: accuracy by epoch, and calibration."""

import io
from typing import Any, NamedTuple

import matplotlib as mpl
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler
from matplotlib.ticker import MaxNLocator

from tllib_ancon.laboratory.finished_runs import PLACE, ROW, label
from tllib_ancon.measures.evaluation import NUM_BINS, expected_calibration_error
from tllib_ancon.runs.directory import PREDICTIONS
from tllib_ancon.runs.files import read_arrays

AXES = {"accuracy": "accuracy (%)", "ece": "ECE (15 bins)"}
"""Score of an epoch -> title of its axis."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
"""Colours that colour-blind readers tell apart (Okabe and Ito, 2008)."""

STYLE: Any = {
    "axes.grid": True,
    "axes.prop_cycle": cycler(color=COLOURS),
    "figure.figsize": (7, 4),  # inches: letters can be read if it is shown 600 pixels wide
    "grid.alpha": 0.3,
    "savefig.dpi": 150,
    "text.parse_math": False,  # a $ in a name is no mathematics
}


class _Picture(NamedTuple):
    """A figure as PNG: a short name for its file, and what it shows."""

    name: str
    title: str
    png: bytes


def figures(runs: pd.DataFrame) -> list[_Picture]:
    """The figures of these runs: of the epochs where all methods have a run in common, and of stored predictions."""
    pictures = []
    with mpl.rc_context(STYLE):
        for name, (title, draw) in _FIGURES.items():
            figure = Figure(layout="constrained")
            draw(figure, runs)
            if figure.axes:
                figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
                file = io.BytesIO()
                figure.savefig(file)
                pictures.append(_Picture(name, title, file.getvalue()))
    return pictures


def _draw_epochs(figure: Figure, runs: pd.DataFrame) -> None:
    """The scores of the runs on targets, from sources and with seeds that every row of a table has, so that their means
    can be compared. A line's value for a seed is the mean over pairs."""
    rows = runs.start + runs.method + runs.variant
    compared = runs[rows.groupby([runs[name] for name in PLACE]).transform("nunique") == rows.nunique()]
    if compared.empty:
        return
    epochs = pd.concat(compared.metrics.tolist(), keys=compared.index, names=["run"])
    with_names = epochs.join(compared[[*ROW, "seed"]], on="run")
    means = with_names.groupby([*ROW, "epoch", "seed"], sort=False)[[*AXES]].mean()
    for panel, (score, title) in zip(figure.subplots(1, len(AXES)), AXES.items(), strict=True):
        panel.set(xlabel="epoch", ylabel=title)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        for row, values in means[score].groupby(level=ROW, sort=False):
            by_seed = values.droplevel(ROW).unstack().dropna()
            panel.plot(by_seed.mean(axis=1), "o-", markersize=3, label=label(*row))
            panel.fill_between(by_seed.index, by_seed.min(axis=1), by_seed.max(axis=1), alpha=0.15, linewidth=0)


def _draw_calibration(figure: Figure, runs: pd.DataFrame) -> None:
    """Accuracy by confidence of the first run of each row that stored its predictions."""
    has_predictions = runs.path.map(lambda path: (path / PREDICTIONS).is_file())
    first_runs = runs[has_predictions].drop_duplicates(ROW)
    if first_runs.empty:
        return
    panel = figure.add_subplot(xlabel="confidence", ylabel="accuracy")
    panel.plot([0, 1], [0, 1], color="black", linestyle=":")
    for run in first_runs.itertuples():
        stored = read_arrays(run.path / PREDICTIONS)
        probabilities = torch.from_numpy(stored["logits"]).softmax(1)
        labels = torch.from_numpy(stored["labels"])
        confidences, predictions = probabilities.max(dim=1)
        rows = pd.DataFrame({"confidence": confidences, "accuracy": predictions.eq(labels)})
        by_bin = rows.groupby((NUM_BINS * rows.confidence).astype(int).clip(upper=NUM_BINS - 1)).mean()
        ece = expected_calibration_error(probabilities, labels)
        name = f"{label(run.start, run.method, run.variant)}, seed {run.seed}, ECE {ece:.3f}"
        panel.plot(by_bin.confidence, by_bin.accuracy, "o-", label=name)


_FIGURES = {
    "epochs": (
        "Accuracy and ECE by epoch, mean over the pairs that every method has; the band is the range over seeds",
        _draw_epochs,
    ),
    "calibration": (f"Accuracy by confidence, {NUM_BINS} bins", _draw_calibration),
}
"""Name of a file -> what the figure shows, and what draws it."""
