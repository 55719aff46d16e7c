"""The figures of this folder's page, from its lists of runs.

python -m benchmarks.tables.figures [FOLDER]
"""

from pathlib import Path

from matplotlib.figure import Figure

from benchmarks import parser
from benchmarks.tables import study
from tllib_ancon.laboratory.curves import COLOURS, DPI, TITLE_SIZE, WIDTH

HERE = Path(__file__).resolve().parent
USUAL_SMOOTHING = 0.3
METHODS = ("source-only", "adabn", "self-training", "elr", "ancon", "ancon-auto")


def smoothing():
    """Accuracy of each λ: a point for each seed."""
    usual = "beta == 0.9 and schedule == 'constant' and weighting == 'relative' and prediction == 'hard'"
    runs = study(HERE / "runs.csv", "sensitivity").query(usual)
    accuracies = {f"λ = {value}": group.tolist() for value, group in runs.groupby("smoothing").accuracy}
    lowest = min(accuracies[f"λ = {USUAL_SMOOTHING}"])
    title = f"λ = {USUAL_SMOOTHING} has the lowest mean, because one of three seeds ends at {lowest:.1f} %"
    return _of_seeds({"accuracy (%)": accuracies}, title)


def demo():
    """Accuracy and ECE of each method: a point for each seed."""
    methods = study(HERE / "runs.csv", "demo").query("rate == 'usual'").groupby("method")
    panels = {}
    for axis, measure in (("accuracy (%)", "accuracy"), ("ECE (15 bins)", "ece")):
        panels[axis] = {method: methods.get_group(method)[measure].tolist() for method in METHODS}
    means = methods.accuracy.mean()
    gain = means["ancon-auto"] - means["self-training"]
    return _of_seeds(panels, f"ancon-auto is {gain:.1f} points above self-training, and better calibrated")


def _of_seeds(panels, title):
    """A panel for each axis, in it a row for each name: a point for each seed and a bar at their mean."""
    figure = Figure(figsize=(WIDTH, 3.3), layout="constrained")
    for panel, (axis, values) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for row, of_seeds in enumerate(values.values()):
            panel.plot(of_seeds, [row] * len(of_seeds), "o", color=COLOURS[0], markersize=5, alpha=0.7)
            panel.plot(sum(of_seeds) / len(of_seeds), row, "|", color=COLOURS[1], markersize=16, markeredgewidth=3)
        panel.set(xlabel=axis, yticks=range(len(values)), yticklabels=list(values), ylim=(len(values) - 0.5, -0.5))
        panel.grid(alpha=0.3, axis="x")
    figure.suptitle(title, fontsize=TITLE_SIZE)
    return figure


FIGURES = {"smoothing": smoothing, "demo": demo}


def main(words=None):
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("folder", type=Path, nargs="?", default=HERE, metavar="FOLDER")
    folder = arguments.parse_args(words).folder
    for name, draw in FIGURES.items():
        draw().savefig(folder / f"{name}.png", dpi=DPI)


if __name__ == "__main__":
    main()
