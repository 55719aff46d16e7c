"""What the paper prints, and what others printed for its settings: the CSV files of ``paper/``.

Each table of the paper has a file. ``other_<table>.csv`` holds other projects' rows, with errors as accuracies (see
``source``).
"""

import csv
from dataclasses import dataclass
from pathlib import Path

from tllib_ancon.runtime.errors import unknown_name

PAPER = "Joo and Klabjan, NeurIPS 2024"

_FOLDER = Path(__file__).with_name("paper")
_LABELS = ("method", "start", "seed", "source")


@dataclass(frozen=True, eq=False)
class Row:
    """One row of a published table; every number is a percentage in [0, 100]."""

    method: str  # its name in the registry, or ``source-only``
    values: dict[str, float]  # column -> accuracy, or ECE in ``officehome_ece``; without those that are not known
    average: float | None  # as printed; none in ``sfda``, whose columns are averages themselves
    source: str = PAPER  # who published the row, and where it stands
    start: str = ""  # what the model was pretrained with, in ``uda``: ``cdan`` or ``mdd``
    seed: str = ""  # of a single run; empty for a mean

    @property
    def name(self) -> str:
        name = ": ".join(filter(None, (self.start, self.method)))
        if not self.seed:
            return name
        return f"{name}, seed {self.seed}"


def published(table: str) -> list[Row]:
    """The rows of a table of the paper, such as ``officehome``, in its order."""
    return _rows(table, table)


def other(table: str) -> list[Row]:
    """Rows published by other projects for the setting of a table, or for ``digits``; none where no rows are kept.
    Their protocols differ (selection on labels, splits, passes over the data); see each ``source``."""
    return _rows(table, f"other_{table}")


def _rows(table: str, name: str) -> list[Row]:
    tables = {file.stem.removeprefix("other_") for file in _FOLDER.glob("*.csv")}
    if table not in tables:
        raise unknown_name("table of the paper", table, sorted(tables))
    file = _FOLDER / f"{name}.csv"
    if not file.is_file():
        return []
    return [_row(record) for record in csv.DictReader(file.read_text(encoding="utf-8").splitlines())]


def _row(record: dict[str, str]) -> Row:
    labels = {name: record.pop(name) for name in _LABELS if name in record}
    values = {column: float(cell) for column, cell in record.items() if cell}
    return Row(values=values, average=values.pop("average", None), **labels)
