"""What the paper prints, what others printed for its settings, and where the paper disagrees with itself.

The data are the CSV files of ``published/``: one per table of the paper, ``other_<table>.csv`` for other
projects, ``claims.csv`` for the percentages stated in the paper's text. Every cell is spelt as it is printed,
except that other projects' errors are kept as accuracies (their ``source`` says so).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from statistics import fmean

from tllib_ancon.errors import unknown_name

PAPER = "Joo and Klabjan, NeurIPS 2024"

_TABLES = (
    "sfda",
    "office31",
    "officehome",
    "officehome_ece",
    "visda",
    "uda",
    "imagenet_c_1",
    "imagenet_c_2",
    "imagenet_c_3",
    "imagenet_c_4",
    "imagenet_c_5",
)
_OTHERS = ("office31", "officehome", "visda", "uda", "imagenet_c_5", "digits")
_LABELS = ("method", "start", "seed", "source")


@dataclass(frozen=True)
class Row:
    """One row of a table; every number is a percentage in [0, 100].

    Args:
        method: the method's name in the registry; ``source-only`` is the start itself, before adaptation.
        values: column (a pair of domains, a class or a corruption) -> accuracy, or ECE in ``officehome_ece``;
            a column whose number is not known is absent.
        average: the printed average, ``None`` where none is. The table ``sfda`` has none: its columns
            ``office31``, ``officehome`` and ``visda`` are averages over all pairs or classes.
        source: who published the row, and where it stands.
        start: what the model was pretrained with, in ``uda``: ``cdan`` or ``mdd``.
        seed: the seed of a single run; empty for a mean.
    """

    method: str
    values: dict[str, float]
    average: float | None
    source: str
    start: str = ""
    seed: str = ""


@dataclass(frozen=True)
class Disagreement:
    """A printed number that does not follow from the other numbers the paper prints.

    Args:
        place: the table or the section of the text that prints the number.
        row: the row's method, or ``method vs baseline`` for a claim of the text.
        cell: the column, or the quantity claimed and the tables it is computed from.
        printed: the number as printed.
        recomputed: what the other numbers give, not rounded.
    """

    place: str
    row: str
    cell: str
    printed: str
    recomputed: float

    @property
    def within_last_digit(self) -> bool:
        """Less than one unit of the last digit apart: rounded cells or a truncated claim explain it."""
        return abs(float(self.printed) - self.recomputed) < _unit(self.printed)


def tables() -> list[str]:
    """Names of the paper's tables, the main text's (``sfda``) first."""
    return list(_TABLES)


def published(table: str) -> list[Row]:
    """The rows that the paper prints, in its order.

    Args:
        table: one of :func:`tables`. ``sfda`` is the main text's table, the others are the appendix's.

    Raises:
        UserError: if there is no such table.
    """
    if table not in _TABLES:
        raise unknown_name("table of the paper", table, _TABLES)
    return [_row(record) for record in _records(table)]


def other(table: str) -> list[Row]:
    """Rows published by other projects for the setting of ``table``, each with its source.

    Protocols differ between projects (selection on labels, splits, passes over the data); see ``source``.

    Args:
        table: one of :func:`tables` (an empty list where no other project's rows are kept) or ``digits``.

    Raises:
        UserError: if there is no such table.
    """
    if table not in {*_TABLES, *_OTHERS}:
        raise unknown_name("table", table, {*_TABLES, *_OTHERS})
    return [_row(record) for record in _records(f"other_{table}")] if table in _OTHERS else []


def disagreements() -> list[Disagreement]:
    """Every cell where the paper disagrees with itself, by three comparisons to the printed rounding:

    - each printed average against the mean of its row;
    - the main text's table (``sfda``) against the appendix's tables;
    - the percentages and counts of the text (``claims.csv``) against the tables' cells and printed averages.

    The text seldom says how it computed a percentage. ``quantity`` in ``claims.csv`` is the reading under
    which most of the text's numbers come out.
    """
    comparisons = [*_averages(), *_main_text_cells(), *_claims()]
    return [found for found in comparisons if not _rounds_to(found.recomputed, found.printed)]


def _averages() -> Iterator[Disagreement]:
    for table in _TABLES:
        for record in _records(table):
            row = _row(record)
            if row.average is not None:
                name = f"{row.method} ({row.start})" if row.start else row.method
                yield Disagreement(table, name, "average", record["average"], fmean(row.values.values()))


def _main_text_cells() -> Iterator[Disagreement]:
    appendix: dict[str, dict[str, float]] = {}
    for table in ("office31", "officehome", "visda"):
        for record in _records(table):
            cells = _cells(record)
            cells[table] = cells.pop("average")
            appendix.setdefault(record["method"], {}).update(cells)
    for record in _records("sfda"):
        for column in _cells(record):
            method = record["method"]
            yield Disagreement("sfda", method, column, record[column], appendix[method][column])


def _claims() -> Iterator[Disagreement]:
    for claim in _records("claims"):
        names = claim["tables"].split()
        measured = fmean(_measure(claim, name) for name in names)
        row = " vs ".join(filter(None, (claim["method"], claim["baseline"])))
        cell = f"{claim['column'] or claim['quantity']}: {', '.join(names)}"
        yield Disagreement(claim["place"], row, cell, claim["printed"], measured)


def _measure(claim: dict[str, str], table: str) -> float:
    rows = {record["method"]: _cells(record) for record in _records(table)}
    baseline = rows.get(claim["baseline"], {})
    return _QUANTITIES[claim["quantity"]](rows[claim["method"]], baseline, claim["column"])


def _gain(value: float, baseline: float) -> float:
    return 100 * (value - baseline) / baseline


_QUANTITIES: dict[str, Callable[[dict[str, float], dict[str, float], str], float]] = {
    "cell": lambda cells, _, column: cells[column],
    "columns": lambda cells, *_: len(cells) - 1,
    "accuracy gain": lambda cells, base, _: _gain(cells["average"], base["average"]),
    "accuracy gain per column": lambda cells, base, _: fmean(
        _gain(value, base[column]) for column, value in cells.items() if column != "average"
    ),
    "error reduction": lambda cells, base, _: -_gain(100 - cells["average"], 100 - base["average"]),
}


def _records(name: str) -> list[dict[str, str]]:
    text = (files(__package__) / "published" / f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _cells(record: dict[str, str]) -> dict[str, float]:
    return {column: float(text) for column, text in record.items() if text and column not in _LABELS}


def _row(record: dict[str, str]) -> Row:
    cells = _cells(record)
    return Row(
        method=record["method"],
        average=cells.pop("average", None),
        values=cells,
        source=record.get("source", PAPER),
        start=record.get("start", ""),
        seed=record.get("seed", ""),
    )


def _rounds_to(value: float, printed: str) -> bool:
    return abs(value - float(printed)) <= _unit(printed) / 2 + 1e-9


def _unit(printed: str) -> float:
    return 10.0 ** -len(printed.partition(".")[2])
