"""Figures of what runs kept of each image: ``predictions.npz``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tllib_ancon.errors import UserError
from tllib_ancon.evaluation import NUM_BINS
from tllib_ancon.report.canvas import Picture, new_figure, picture, plain, whole_ticks
from tllib_ancon.report.runs import AdaptedRun
from tllib_ancon.report.tables import usual_settings, variant
from tllib_ancon.training.saved_predictions import SavedPredictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

MOST_PANELS = 9
MOST_POINTS = 1000
MOST_CLASSES = 100
LARGEST_FEATURE = 1e15
MARKERS = "o^sDvP*X<>"
READABLE_CLASSES = 12
"""Class names that are written horizontally; more get a smaller type and a larger panel."""


@dataclass(frozen=True)
class Shown:
    """The predictions of one run, with the names of its classes and what stands above its panel."""

    title: str
    classes: Sequence[str]
    saved: SavedPredictions

    @property
    def probabilities(self) -> Tensor:
        import torch

        return torch.from_numpy(self.saved.logits.astype(np.float32)).softmax(1)

    @property
    def labels(self) -> Tensor:
        import torch

        assert self.saved.labels is not None
        return torch.from_numpy(self.saved.labels.astype(np.int64))

    @property
    def coloring(self) -> npt.NDArray[Any]:
        """The true class of each image, or the predicted one where there are no labels."""
        return self.saved.logits.argmax(1) if self.saved.labels is None else self.saved.labels


def figures(runs: Sequence[AdaptedRun], varied: Sequence[str]) -> tuple[list[Picture | None], list[str]]:
    """The figures of the first run of each method and variant, and why predictions are not shown, one text each."""
    usual = usual_settings(runs, varied)
    shown: dict[str, Shown] = {}
    notes: list[str] = []
    for run in runs:
        name = ", ".join(filter(None, (label(run), plain(variant(run, usual)))))
        if name not in shown:
            try:
                saved = run.predictions
            except UserError as error:
                notes.append(f"left out of the figures: {error}")
                continue
            if saved is not None:
                shown[name] = Shown(f"{name}, {_place(run)}", _classes(run, saved), saved)
    labelled = [one for one in shown.values() if one.saved.labels is not None]
    notes += [f"left out of t-SNE, its features have diverged: {one.title}" for one in shown.values() if _diverged(one)]
    return [_votes(labelled), *_images(list(shown.values())[:MOST_PANELS], labelled[:MOST_PANELS])], notes


def label(run: AdaptedRun) -> str:
    """What a run is called in a figure: its method, and its start where that is not the usual one."""
    return plain(run.method if run.start in ("erm", "imagenet", "checkpoint") else f"{run.start}: {run.method}")


def _images(shown: Sequence[Shown], labelled: Sequence[Shown]) -> list[Picture | None]:
    few = [one for one in labelled if len(one.classes) <= MOST_CLASSES]
    side = _side_for_names(few)
    with_features = [one for one in shown if _has_features(one) and not _diverged(one)]
    unknown = [one.saved.labels is None for one in with_features]
    colored = (
        "coloured by predicted class"
        if all(unknown)
        else f"coloured by true class{', or by the predicted one without labels' if any(unknown) else ''}"
    )
    return [
        _panels("reliability", f"Reliability diagrams, {NUM_BINS} bins", labelled, _draw_reliability),
        _panels("confusion", "Confusion matrices", few, _draw_confusion, side, _color_bar),
        _panels("tsne", f"t-SNE of the features, {colored}", with_features, _draw_tsne, 4.0, _class_legend),
    ]


def _votes(shown: Sequence[Shown]) -> Picture | None:
    import torch

    from tllib_ancon.evaluation import accuracy_by_votes

    figure, (panel,) = new_figure(1)
    for one in shown:
        votes = one.saved.votes
        if votes is None or not (votes == votes.round()).all() or not votes.any():
            continue
        adapted = votes.sum(1) > 0
        curve = accuracy_by_votes(
            torch.from_numpy(votes[adapted].astype(np.float32)), one.labels[torch.from_numpy(adapted)]
        )
        panel.plot(curve.num_votes.numpy(), curve.accuracy.numpy(), marker=".", label=one.title)
    if not panel.lines:
        return None
    panel.set_xlabel("confident votes of an image")
    whole_ticks(panel.xaxis)
    panel.set_ylabel("accuracy of the temporal ensemble (%)")
    panel.grid(alpha=0.3)
    panel.legend()
    return picture("votes", "Accuracy of the temporal ensemble by number of confident votes", figure)


def _panels(
    name: str,
    title: str,
    shown: Sequence[Shown],
    draw: Callable[[Axes, Shown], None],
    side: float = 4.0,
    complete: Callable[[Figure, Sequence[Shown]], None] = lambda figure, shown: None,
) -> Picture | None:
    """A panel a run, and what belongs to all of them."""
    if not shown:
        return None
    figure, panels = new_figure(len(shown), side)
    for panel, one in zip(panels, shown, strict=True):
        draw(panel, one)
        panel.set_title(one.title, fontsize=9)
    complete(figure, shown)
    return picture(name, title, figure)


def _draw_reliability(panel: Axes, one: Shown) -> None:
    from tllib_ancon.evaluation import expected_calibration_error, reliability_diagram_data

    data = reliability_diagram_data(one.probabilities, one.labels)
    width = 1 / len(data.counts)
    panel.bar(data.edges[:-1].numpy(), data.accuracy.nan_to_num(0).numpy(), width, align="edge", edgecolor="white")
    panel.plot([0, 1], [0, 1], color="black", linestyle=":")
    panel.text(0.03, 0.93, f"ECE {expected_calibration_error(one.probabilities, one.labels):.3f}")
    panel.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy")


def _draw_confusion(panel: Axes, one: Shown) -> None:
    from tllib_ancon.evaluation import confusion_matrix

    counts = confusion_matrix(one.probabilities.argmax(1), one.labels, len(one.classes)).double()
    panel.imshow((counts / counts.sum(1, keepdim=True).clamp(min=1)).numpy(), cmap="Blues", vmin=0, vmax=1)
    size = 8 if len(one.classes) <= READABLE_CLASSES else 6
    panel.set_xticks(range(len(one.classes)), one.classes, rotation=90, fontsize=size)
    panel.set_yticks(range(len(one.classes)), one.classes, fontsize=size)
    panel.set(xlabel="prediction", ylabel="label")


def _color_bar(figure: Figure, shown: Sequence[Shown]) -> None:
    image = figure.axes[0].images[0]
    figure.colorbar(image, ax=figure.axes, shrink=0.6, aspect=30, label="share of the images of a class")


def _draw_tsne(panel: Axes, one: Shown) -> None:
    from sklearn.manifold import TSNE

    assert one.saved.features is not None
    chosen = np.random.default_rng(0).permutation(len(one.saved.logits))[:MOST_POINTS]
    perplexity = min(30.0, max(1.0, (len(chosen) - 1) / 3))
    points = TSNE(perplexity=perplexity, random_state=0).fit_transform(one.saved.features[chosen].astype(np.float32))
    classes = one.coloring[chosen]
    for number in np.unique(classes):
        across, up = points[classes == number].T
        panel.scatter(across, up, s=9, linewidths=0, **_look(int(number)))
    panel.set(xticks=[], yticks=[])


def _look(number: int) -> dict[str, Any]:
    """Colour and marker of a class; those of 100 classes differ."""
    return {"color": f"C{number % 10}", "marker": MARKERS[number // 10 % len(MARKERS)]}


def _class_legend(figure: Figure, shown: Sequence[Shown]) -> None:
    from matplotlib.lines import Line2D

    present = sorted({int(number) for one in shown for number in np.unique(one.coloring)})
    if present[-1] < MOST_CLASSES:
        entries = [Line2D([], [], linestyle="", label=shown[0].classes[number], **_look(number)) for number in present]
        columns = max(1, int(figure.get_figwidth() // (0.5 + 0.09 * max(map(len, shown[0].classes)))))
        columns = min(columns, len(entries))
        figure.legend(handles=entries, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=columns, fontsize=8)


def _side_for_names(shown: Sequence[Shown]) -> float:
    """Inches of a panel whose rows carry the names of the classes."""
    largest = max((len(one.classes) for one in shown), default=0)
    longest = max((len(name) for one in shown for name in one.classes), default=0)
    return max(4.0, 0.11 * largest + 0.06 * longest + 1.0)


def _classes(run: AdaptedRun, saved: SavedPredictions) -> list[str]:
    num_classes = saved.logits.shape[1]
    names = run.classes if len(run.classes) == num_classes else [str(number) for number in range(num_classes)]
    return [plain(name if len(name) <= 24 else f"{name[:23]}…") for name in names]


def _has_features(one: Shown) -> bool:
    """Whether there is something to draw in two dimensions."""
    return one.saved.features is not None and min(one.saved.features.shape) > 2


def _diverged(one: Shown) -> bool:
    """Whether squares of the features overflow, or they are no numbers."""
    features = one.saved.features
    return features is not None and not bool((np.abs(features.astype(np.float64)) < LARGEST_FEATURE).all())


def _place(run: AdaptedRun) -> str:
    return plain(f"{run.column}{'' if run.severity is None else f'/{run.severity}'}, seed {run.seed}")
