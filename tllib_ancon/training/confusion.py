"""Which classes a model takes for which: a table for each class, and the confusion matrix as a file."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tllib_ancon.runs.files import new_file, write_bytes, write_whole
from tllib_ancon.runtime.errors import named
from tllib_ancon.runtime.extras import require
from tllib_ancon.runtime.text import csv_text, showable

Confusion = NDArray[np.int64]
"""(K, K) numbers of images: a row for each true class, a column for each predicted one."""

FORMATS = (".csv", ".png")

WIDEST_NAME = 30
"""Characters of a class name in the table."""


def class_table(confusion: Confusion, classes: Sequence[str]) -> Iterator[str]:
    """A line for each class that has images: their number, the accuracy and the most frequent mistake."""
    names = [showable(name)[:WIDEST_NAME] for name in classes]
    width = max(len("class"), *map(len, names))
    yield f"{'class':<{width}}  images  accuracy  most frequent mistake"
    for label in np.flatnonzero(confusion.sum(1)).tolist():
        row = confusion[label].copy()
        num_images = int(row.sum())
        accuracy = 100 * row[label] / num_images
        row[label] = 0
        mistake = ""
        if row.any():
            mistake = f"  {names[int(row.argmax())]} ({row.max():,})"
        yield f"{names[label]:<{width}}  {num_images:>6,}  {accuracy:>6.2f} %{mistake}"


def require_file(file: str) -> None:
    """Raise an error for a file that cannot be written, or where the package that writes it is missing."""
    path = new_file(file, setting="confusion", formats=FORMATS)
    if path.suffix.lower() == ".png":
        require(named("confusion", file), "matplotlib", extra="report")


def write_confusion(confusion: Confusion, classes: Sequence[str], file: str) -> None:
    """Write the matrix as CSV or PNG, by the ending of the file."""
    names = [showable(name) for name in classes]
    if Path(file).suffix.lower() == ".csv":
        rows = [[name, *counts] for name, counts in zip(names, confusion.tolist(), strict=True)]
        write_bytes(Path(file), csv_text([["true class", *names], *rows]).encode())
        return
    from matplotlib.figure import Figure  # of an extra

    side = 3 + 0.3 * min(len(names), 100)
    figure = Figure(figsize=(side, side), layout="constrained")
    axes = figure.add_subplot(xlabel="predicted class", ylabel="true class")
    axes.imshow(confusion / np.maximum(confusion.sum(1, keepdims=True), 1), cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    write_whole(Path(file), lambda stream: figure.savefig(stream, format="png"))
