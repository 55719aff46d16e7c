"""Three figures of finished runs, as PNG: accuracy by epoch, accuracy of each method by pair, and calibration."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from tllib_ancon.laboratory.curves import COLOURS, DPI, MARKERS, WIDTH, WITH_LABELS, draw_curves
from tllib_ancon.laboratory.finished_runs import ROW, compared_everywhere, label
from tllib_ancon.laboratory.tables import ACCURACY, measured
from tllib_ancon.measures import evaluation
from tllib_ancon.runs.directory import PREDICTIONS
from tllib_ancon.runs.files import read_arrays
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.text import showable

_MOST_PANELS = 9
_PANELS_IN_A_ROW = 3


@dataclass(frozen=True)
class Picture:
    """A figure as PNG: a short name for its file, and what it shows."""

    name: str
    title: str
    png: bytes


def figures(runs: pd.DataFrame) -> tuple[list[Picture], list[str]]:
    """The figures of these runs, and which predictions cannot be read, one text each."""
    pictures = [_accuracy_by_pair(runs)]
    compared = compared_everywhere(runs)
    if len(compared):
        pictures.insert(0, _accuracy_by_epoch(compared))
    predictions, notes = _predictions(runs)
    if predictions:
        pictures.append(_calibration(predictions[:_MOST_PANELS]))
    return pictures, notes


def _name(row: Any) -> str:
    """Name of a row that matplotlib can show and does not read as mathematics."""
    return _plain(label(row.start, row.method, row.variant))


def _accuracy_by_epoch(runs: pd.DataFrame) -> Picture:
    """The mean over pairs is a line's value for a seed."""
    epochs = pd.concat([run.metrics.assign(name=_name(run), seed=run.seed) for run in runs.itertuples()])
    means = epochs.groupby(["name", "seed", "epoch"], sort=False)[list(WITH_LABELS)].mean().reset_index()
    curves = [(name, of_seed.to_dict("records")) for (name, _), of_seed in means.groupby(["name", "seed"], sort=False)]
    file = io.BytesIO()
    draw_curves(curves, file)
    title = "Accuracy and ECE by epoch, mean over the pairs that every method has; the band is the range over seeds"
    return Picture("epochs", title, file.getvalue())


def _accuracy_by_pair(runs: pd.DataFrame) -> Picture:
    accuracies = measured(runs, ACCURACY).unstack("column", sort=False)
    means = accuracies.groupby(level=ROW, sort=False).mean()
    figure = Figure(figsize=(WIDTH, 2.4 + 0.3 * means.shape[1]), layout="constrained")
    panel = figure.add_subplot()
    panel.set_prop_cycle(color=COLOURS, marker=[*MARKERS])
    for row, values in means.iterrows():
        panel.plot(values, list(map(_plain, values.index)), linestyle="", label=_plain(label(*row)))
    panel.set(xlabel=WITH_LABELS[ACCURACY.name])
    panel.invert_yaxis()
    panel.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3)
    return _picture("pairs", "Accuracy of the selected epoch by pair, mean over seeds", figure)


def _calibration(predictions: Sequence[tuple[str, Tensor, Tensor]]) -> Picture:
    columns = min(len(predictions), _PANELS_IN_A_ROW)
    rows = math.ceil(len(predictions) / columns)
    figure = Figure(figsize=(max(4.0, 3.2 * columns), 3.4 * rows), layout="compressed")
    for place, (name, probabilities, labels) in enumerate(predictions, start=1):
        panel = figure.add_subplot(rows, columns, place)
        panel.set_title(name, fontsize=9)
        _draw_reliability(panel, probabilities, labels)
    return _picture("calibration", f"Accuracy by confidence, {evaluation.NUM_BINS} bins", figure)


def _draw_reliability(panel: Axes, probabilities: Tensor, labels: Tensor) -> None:
    data = evaluation.reliability_diagram_data(probabilities, labels)
    heights = data.accuracy.nan_to_num(0).numpy()
    panel.bar(data.edges[:-1].numpy(), heights, 1 / len(heights), align="edge", color=COLOURS[0], edgecolor="white")
    panel.plot([0, 1], [0, 1], color="black", linestyle=":")
    panel.text(0.03, 0.93, f"ECE {evaluation.expected_calibration_error(probabilities, labels):.3f}")
    panel.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy")


def _predictions(runs: pd.DataFrame) -> tuple[list[tuple[str, Tensor, Tensor]], list[str]]:
    """Name, probabilities (N, K) and labels (N,) of the first run of each row of a table that has them."""
    predictions: dict[str, tuple[str, Tensor, Tensor]] = {}
    notes = []
    for run in runs.itertuples():
        if not (run.path / PREDICTIONS).is_file():
            continue
        try:
            stored = read_arrays(run.path / PREDICTIONS)
        except UserError as error:
            notes.append(f"left out of the figures: {error}")
            continue
        if "labels" in stored:
            probabilities = torch.from_numpy(stored["logits"]).softmax(1)
            labels = torch.from_numpy(stored["labels"])
            title = f"{_name(run)}, {_plain(run.pair)}, seed {run.seed}"
            predictions.setdefault(_name(run), (title, probabilities, labels))
    return list(predictions.values()), notes


def _plain(text: str) -> str:
    """Text that matplotlib can show and does not read as mathematics."""
    return showable(text).replace("$", r"\$")


def _picture(name: str, title: str, figure: Figure) -> Picture:
    file = io.BytesIO()
    figure.savefig(file, dpi=DPI, format="png", bbox_inches="tight", pad_inches=0.1)
    return Picture(name, title, file.getvalue())
