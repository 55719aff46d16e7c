"""Three figures of finished runs, as PNG: accuracy by epoch, accuracy of each method by pair, and calibration."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import pandas as pd
import torch
from matplotlib.figure import Figure

from tllib_ancon.laboratory.curves import COLOURS, DPI, WIDTH, WITH_LABELS, draw_curves
from tllib_ancon.laboratory.finished_runs import PLACE, ROW, label
from tllib_ancon.laboratory.tables import measured
from tllib_ancon.measures.evaluation import NUM_BINS, expected_calibration_error
from tllib_ancon.runs.directory import PREDICTIONS
from tllib_ancon.runs.files import read_arrays


@dataclass(frozen=True)
class _Picture:
    """A figure as PNG: a short name for its file, and what it shows."""

    name: str
    title: str
    png: bytes


def figures(runs: pd.DataFrame) -> list[_Picture]:
    """The figures of these runs: of the epochs where all methods have a run in common, and of stored predictions."""
    with mpl.rc_context({"text.parse_math": False}):  # a $ in a name is no mathematics
        pictures = [_accuracy_by_epoch(_compared_everywhere(runs)), _accuracy_by_pair(runs), _calibration(runs)]
    return [picture for picture in pictures if picture is not None]


def _compared_everywhere(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs on targets, from sources and with seeds that every row of a table has: their means can be compared."""
    rows = runs.start + runs.method + runs.variant
    return runs[rows.groupby([runs[name] for name in PLACE]).transform("nunique") == rows.nunique()]


def _accuracy_by_epoch(runs: pd.DataFrame) -> _Picture | None:
    """The mean over pairs is a line's value for a seed."""
    if runs.empty:
        return None
    epochs = pd.concat(runs.metrics.tolist(), keys=runs.index, names=["run"])
    with_names = epochs.join(runs[[*ROW, "seed"]], on="run")
    means = with_names.groupby([*ROW, "seed", "epoch"], sort=False)[[*WITH_LABELS]].mean().reset_index("epoch")
    by_seed = means.groupby(level=[*ROW, "seed"], sort=False)
    file = io.BytesIO()
    draw_curves([(label(*key[:3]), of_seed.to_dict("records")) for key, of_seed in by_seed], file)
    title = "Accuracy and ECE by epoch, mean over the pairs that every method has; the band is the range over seeds"
    return _Picture("epochs", title, file.getvalue())


def _accuracy_by_pair(runs: pd.DataFrame) -> _Picture:
    means = measured(runs, "accuracy").groupby(level=ROW, sort=False).mean()
    figure, panel = _panel(2.4 + 0.3 * means.shape[1], WITH_LABELS["accuracy"])
    for row, accuracies in means.iterrows():
        panel.plot(accuracies, [*means], "o", label=label(*row))
    panel.invert_yaxis()
    return _picture("pairs", "Accuracy of the selected epoch by pair, mean over seeds", figure)


def _calibration(runs: pd.DataFrame) -> _Picture | None:
    """Accuracy by confidence of the first run of each row that stored its predictions."""
    figure, panel = _panel(4.5, "confidence", "accuracy")
    panel.plot([0, 1], [0, 1], color="black", linestyle=":")
    has_predictions = runs.path.map(lambda path: (path / PREDICTIONS).is_file())
    first_runs = runs[has_predictions].drop_duplicates(ROW)
    if first_runs.empty:
        return None
    for run in first_runs.itertuples():
        name = f"{label(run.start, run.method, run.variant)}, seed {run.seed}"
        _draw_calibration(panel, name, read_arrays(run.path / PREDICTIONS))
    return _picture("calibration", f"Accuracy by confidence, {NUM_BINS} bins", figure)


def _draw_calibration(panel: Any, name: str, stored: Mapping[str, Any]) -> None:
    probabilities = torch.from_numpy(stored["logits"]).softmax(1)
    labels = torch.from_numpy(stored["labels"])
    confidences, predictions = probabilities.max(dim=1)
    rows = pd.DataFrame({"confidence": confidences, "accuracy": predictions.eq(labels)})
    by_bin = rows.groupby((NUM_BINS * rows.confidence).astype(int).clip(upper=NUM_BINS - 1)).mean()
    ece = expected_calibration_error(probabilities, labels)
    panel.plot(by_bin.confidence, by_bin.accuracy, "o-", label=f"{name}, ECE {ece:.3f}")


def _panel(height: float, xlabel: str, ylabel: str = "") -> tuple[Figure, Any]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    panel = figure.add_subplot()
    panel.set_prop_cycle(color=COLOURS)
    panel.set(xlabel=xlabel, ylabel=ylabel)
    panel.grid(alpha=0.3)
    return figure, panel


def _picture(name: str, title: str, figure: Figure) -> _Picture:
    figure.legend(loc="outside lower center", ncols=3)
    file = io.BytesIO()
    figure.savefig(file, dpi=DPI, format="png")
    return _Picture(name, title, file.getvalue())
