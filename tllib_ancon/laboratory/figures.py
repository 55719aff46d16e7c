"""Three figures of finished runs, as PNG: accuracy by epoch, accuracy of each method by pair, and calibration."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure

from tllib_ancon.laboratory.curves import COLOURS, DPI, WIDTH, WITH_LABELS, draw_curves
from tllib_ancon.laboratory.finished_runs import ROW, compared_everywhere, label
from tllib_ancon.laboratory.tables import ACCURACY, measured
from tllib_ancon.measures.evaluation import NUM_BINS, expected_calibration_error, reliability_diagram_data
from tllib_ancon.runs.directory import PREDICTIONS
from tllib_ancon.runs.files import read_arrays
from tllib_ancon.runtime.errors import UserError


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
    calibration, notes = _calibration(runs)
    return [*pictures, *calibration], notes


def _name(start: str, method: str, variant: str) -> str:
    """Name of a row that matplotlib does not read as mathematics."""
    return label(start, method, variant).replace("$", r"\$")


def _accuracy_by_epoch(runs: pd.DataFrame) -> Picture:
    """The mean over pairs is a line's value for a seed."""
    epochs = pd.concat(runs.metrics.tolist(), keys=runs.index, names=["run"])
    with_names = epochs.join(runs[[*ROW, "seed"]], on="run")
    means = with_names.groupby([*ROW, "seed", "epoch"], sort=False)[[*WITH_LABELS]].mean().reset_index("epoch")
    by_seed = means.groupby(level=[*ROW, "seed"], sort=False)
    file = io.BytesIO()
    draw_curves([(_name(*key[:3]), of_seed.to_dict("records")) for key, of_seed in by_seed], file)
    title = "Accuracy and ECE by epoch, mean over the pairs that every method has; the band is the range over seeds"
    return Picture("epochs", title, file.getvalue())


def _accuracy_by_pair(runs: pd.DataFrame) -> Picture:
    means = measured(runs, ACCURACY).groupby(level=ROW, sort=False).mean()
    figure, panel = _panel(2.4 + 0.3 * means.shape[1], WITH_LABELS["accuracy"])
    pairs = [pair.replace("$", r"\$") for pair in means]
    for row, accuracies in means.iterrows():
        panel.plot(accuracies, pairs, "o", label=_name(*row))
    panel.invert_yaxis()
    return _picture("pairs", "Accuracy of the selected epoch by pair, mean over seeds", figure)


def _calibration(runs: pd.DataFrame) -> tuple[list[Picture], list[str]]:
    """Accuracy by confidence of the first run of each row that stored predictions and labels."""
    figure, panel = _panel(4.5, "confidence", "accuracy")
    panel.plot([0, 1], [0, 1], color="black", linestyle=":")
    drawn: set[str] = set()
    notes = []
    for run in runs.itertuples():
        name = _name(run.start, run.method, run.variant)
        if name in drawn or not (run.path / PREDICTIONS).is_file():
            continue
        try:
            stored = read_arrays(run.path / PREDICTIONS)
        except UserError as error:
            notes.append(f"left out of the figures: {error}")
            continue
        if "labels" in stored:
            drawn.add(name)
            _draw_calibration(panel, f"{name}, seed {run.seed}", stored)
    if not drawn:
        return [], notes
    return [_picture("calibration", f"Accuracy by confidence, {NUM_BINS} bins", figure)], notes


def _draw_calibration(panel: Any, name: str, stored: Mapping[str, Any]) -> None:
    probabilities = torch.from_numpy(stored["logits"]).softmax(1)
    labels = torch.from_numpy(stored["labels"])
    data = reliability_diagram_data(probabilities, labels)
    centres = (data.edges[:-1] + data.edges[1:]) / 2
    ece = expected_calibration_error(probabilities, labels)
    panel.plot(centres, data.accuracy, "o-", label=f"{name}, ECE {ece:.3f}")


def _panel(height: float, xlabel: str, ylabel: str = "") -> tuple[Figure, Any]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    panel = figure.add_subplot()
    panel.set_prop_cycle(color=COLOURS)
    panel.set(xlabel=xlabel, ylabel=ylabel)
    panel.grid(alpha=0.3)
    return figure, panel


def _picture(name: str, title: str, figure: Figure) -> Picture:
    figure.legend(loc="outside lower center", ncols=3)
    file = io.BytesIO()
    figure.savefig(file, dpi=DPI, format="png")
    return Picture(name, title, file.getvalue())
