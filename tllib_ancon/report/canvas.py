"""A figure as PNG, drawn without a display."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_IN_A_ROW = 3
CROWDED = 60
"""Characters of tick labels beside each other that still fit."""


@dataclass(frozen=True)
class Picture:
    """A figure as PNG: a short name for its file, and what it shows."""

    name: str
    title: str
    png: bytes


def new_figure(panels: int, side: float = 5.0) -> tuple[Figure, Sequence[Axes]]:
    """A figure of so many square panels, at most three in a row.

    Args:
        panels: how many
        side: of a panel, in inches
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(panels, MOST_IN_A_ROW)
    rows = -(-panels // columns)
    figure = Figure(figsize=(max(6.0, side * columns), max(4.0, side * rows)), layout="compressed")
    FigureCanvasAgg(figure)
    places: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).flatten())
    for unused in places[panels:]:
        unused.remove()
    return figure, places[:panels]


def picture(name: str, title: str, figure: Figure) -> Picture:
    file = io.BytesIO()
    figure.savefig(file, dpi=110, format="png", bbox_inches="tight", pad_inches=0.1)
    return Picture(name, title, file.getvalue())


def boxes(name: str, title: str, values: Mapping[str, Sequence[float]], axis: str) -> Picture:
    """A box for each group of values; triangles are means. Many or long names stand below each other."""
    upright = sum(map(len, values)) <= CROWDED
    figure, (panel,) = new_figure(1)
    if upright:
        panel.boxplot(list(values.values()), tick_labels=list(values), showmeans=True)
        panel.set_ylabel(axis)
    else:
        figure.set_size_inches(12, 1 + 0.35 * len(values))
        panel.boxplot(list(values.values()), tick_labels=list(values), showmeans=True, orientation="horizontal")
        panel.invert_yaxis()
        panel.set_xlabel(axis)
    panel.grid(alpha=0.3, axis="y" if upright else "x")
    return picture(name, title, figure)


def whole_ticks(axis: Any) -> None:
    """Ticks of this axis at whole numbers alone."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def plain(text: str) -> str:
    """Text that matplotlib does not read as mathematics."""
    return text.replace("$", r"\$")
