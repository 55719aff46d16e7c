"""The figures of this folder's page, from its lists of runs.

python -m benchmarks.tables.figures [FOLDER]
"""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks import parser
from benchmarks.tables import study
from tllib_ancon.laboratory.curves import COLOURS, DPI, TITLE_SIZE, WIDTH

HERE = Path(__file__).resolve().parent
USUAL_SMOOTHING = 0.3
METHODS = ("source-only", "adabn", "self-training", "elr", "ancon", "ancon-auto")


def smoothing() -> Figure:
    """Accuracy of each λ: a point for each seed."""
    runs = study(HERE / "runs.csv", "sensitivity")
    usual = {"beta": 0.9, "schedule": "constant", "weighting": "relative", "prediction": "hard"}
    for setting, value in usual.items():
        runs = runs[runs[setting] == value]
    accuracies = {f"λ = {value}": list(group.accuracy) for value, group in runs.groupby("smoothing")}
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    panel = figure.add_subplot()
    _draw_seeds(panel, accuracies, "accuracy (%)")
    lowest = min(accuracies[f"λ = {USUAL_SMOOTHING}"])
    title = f"λ = {USUAL_SMOOTHING} has the lowest mean, because one of three seeds ends at {lowest:.1f} %"
    figure.suptitle(title, fontsize=TITLE_SIZE)
    return figure


def demo() -> Figure:
    """Accuracy and ECE of each method: a point for each seed."""
    runs = study(HERE / "runs.csv", "demo").query("rate == 'usual'")
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    for place, (measure, axis) in enumerate({"accuracy": "accuracy (%)", "ece": "ECE (15 bins)"}.items(), start=1):
        panel = figure.add_subplot(1, 2, place)
        _draw_seeds(panel, {method: list(runs[runs.method == method][measure]) for method in METHODS}, axis)
    means = runs.groupby("method").accuracy.mean()
    gain = means["ancon-auto"] - means["self-training"]
    title = f"ancon-auto is {gain:.1f} points above self-training, and better calibrated"
    figure.suptitle(title, fontsize=TITLE_SIZE)
    return figure


def _draw_seeds(panel: Axes, values: dict[str, list[float]], axis: str) -> None:
    """A row for each name: a point for each seed and a bar at their mean."""
    for row, of_seeds in enumerate(values.values()):
        panel.plot(of_seeds, [row] * len(of_seeds), "o", color=COLOURS[0], markersize=5, alpha=0.7)
        panel.plot(sum(of_seeds) / len(of_seeds), row, "|", color=COLOURS[1], markersize=16, markeredgewidth=3)
    panel.set(xlabel=axis, yticks=range(len(values)), yticklabels=list(values), ylim=(len(values) - 0.5, -0.5))
    panel.grid(alpha=0.3, axis="x")


FIGURES = {"smoothing": smoothing, "demo": demo}


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("folder", type=Path, nargs="?", default=HERE, metavar="FOLDER")
    folder = arguments.parse_args(words).folder
    for name, draw in FIGURES.items():
        draw().savefig(folder / f"{name}.png", dpi=DPI)


if __name__ == "__main__":
    main()
