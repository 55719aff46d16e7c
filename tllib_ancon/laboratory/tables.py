"""Tables of runs: mean and standard deviation over seeds, beside what the paper printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

import pandas as pd

from tllib_ancon.data.domain import numbered
from tllib_ancon.laboratory.finished_runs import PLACE, ROW, compared_everywhere, label
from tllib_ancon.laboratory.published import Row, mean_corruption_error
from tllib_ancon.measures.evaluation import NUM_BINS
from tllib_ancon.measures.selection import CRITERIA, best_epoch
from tllib_ancon.runtime.types import Record

PAPER_SEEDS = 3
AVERAGE = "average"
SOURCE_ONLY = "source-only"


@dataclass(frozen=True)
class Table:
    """What a report shows."""

    title: str
    cells: pd.DataFrame  # Markdown, by kind of row (measured, published, difference, other) and name; "" for no number
    notes: Sequence[str] = ()  # how to read it, what deviates from the paper, and where others printed their rows


@dataclass(frozen=True)
class Quantity:
    """A number of a run, such as accuracy or ECE."""

    name: str  # its column in a frame; of accuracy by class that is ``per_class_accuracy``
    title: str  # with its unit
    sign: int = 1  # 1 where higher is better, -1 where lower is, 0 where no method is the best by it
    notes: Sequence[str] = ()
    decimals: int = 2
    printed_unit: float = 1.0  # what the paper's numbers are multiplied by


_BINS = f"ECE with {NUM_BINS} equal-width bins over [0, 1]; the paper does not state its number of bins"
ACCURACY = Quantity("accuracy", "accuracy in %")
ECE = Quantity("ece", f"ECE, {NUM_BINS} bins", -1, (_BINS,), decimals=4, printed_unit=0.01)
CLASS_ACCURACY = Quantity("class_accuracy", "accuracy by class in %")
WITH_LABELS = (ACCURACY, ECE)
INFOMAX = Quantity(
    "infomax",
    "InfoMax of the images held out, in nats",
    0,
    ("higher is better; it uses no label and does not show how many predictions are right",),
    4,
)
"""Of runs whose target has no labels."""

RowKey = tuple[str, str, str]
"""Start, method and variant."""
PrintedRow = tuple[Row, "pd.Series[float]"]
Line = tuple[str, str, "pd.Series[str]"]
"""A row of a table: its kind, its name and its texts by column."""


def measured(runs: pd.DataFrame, quantity: Quantity, classes: Sequence[str] = ()) -> pd.Series[float]:
    """The numbers of a table by :data:`ROW` and :data:`PLACE`; those of source models come first."""
    sources = runs.assign(method=SOURCE_ONLY, variant="")
    parts = [_values(sources, quantity, "start_", classes), _values(runs, quantity, "", classes)]
    numbers = pd.concat(parts).sort_values("start", kind="stable")
    numbers = numbers.dropna(subset="value").astype({"value": float})
    return numbers.groupby([*ROW, *PLACE], sort=False).value.last()


def _values(runs: pd.DataFrame, quantity: Quantity, prefix: str, classes: Sequence[str]) -> pd.DataFrame:
    places = runs[[*ROW, *PLACE]]
    if quantity is not CLASS_ACCURACY:
        return places.assign(value=runs[prefix + quantity.name])
    accuracies = runs[f"{prefix}per_class_accuracy"]

    def names_of(values: Sequence[float]) -> Sequence[str]:
        if len(classes) == len(values):
            return classes
        return numbered(len(values))

    names = accuracies.map(names_of)
    return places.assign(column=names, value=accuracies).explode(["column", "value"])


def table(quantity: Quantity, runs: pd.DataFrame, published: Sequence[Row] = (), others: Sequence[Row] = ()) -> Table:
    """Rows are starts, methods and variants, each above the paper's and their difference, and below them all the rows
    of others; columns are pairs, corruptions or classes. The best method of each start is bold."""
    printed_columns = []
    if published:
        printed_columns = list(published[0].values)
    numbers = measured(runs, quantity, printed_columns)
    if numbers.empty:
        return Table(quantity.title, pd.DataFrame())
    values = _by_column(numbers, printed_columns)
    is_whole = {*values} - {AVERAGE} == {*printed_columns}
    paper_rows = _printed(published, values, is_whole, quantity)
    other_rows = _printed(others, values, is_whole, quantity)
    lines = list(_measured_lines(values, quantity, paper_rows))
    lines += [("other", f"{row.name} (others)", as_text(cells, quantity.decimals)) for row, cells in other_rows]
    notes = [*_reading_notes(values, quantity), *quantity.notes]
    if AVERAGE in values and printed_columns and not is_whole:
        notes.append("averages, the printed rows' too, are over the columns shown")
    notes += _source_notes([row for row, _ in other_rows])
    names = pd.MultiIndex.from_tuples([(kind, name) for kind, name, _ in lines])
    texts = pd.DataFrame([cells.tolist() for *_, cells in lines], names, values.columns)
    return Table(quantity.title, texts[(texts != "").any(axis=1)], notes)


def _by_column(numbers: pd.Series[float], printed_columns: Sequence[str]) -> pd.DataFrame:
    """Columns in the paper's order, then those that the paper lacks; with several, their average at the end."""
    values = numbers.unstack("column", sort=False)
    names = dict.fromkeys([*printed_columns, *values])
    values = values[[name for name in names if name in values]]
    if len(values.columns) > 1:
        values[AVERAGE] = values.mean(axis=1, skipna=False)
    return values


def _printed(rows: Sequence[Row], values: pd.DataFrame, is_whole: bool, quantity: Quantity) -> list[PrintedRow]:
    """Published rows in the columns of a table; printed averages only where the table has all columns of the paper."""
    printed = []
    for row in rows:
        numbers = pd.Series(row.values, dtype=float).reindex(values.columns)
        if AVERAGE in numbers:
            numbers[AVERAGE] = numbers.drop(AVERAGE).mean(skipna=False)
            if is_whole and row.average is not None:
                numbers[AVERAGE] = row.average
        if numbers.notna().any():
            printed.append((row, quantity.printed_unit * numbers))
    return printed


def _measured_lines(values: pd.DataFrame, quantity: Quantity, published: Sequence[PrintedRow]) -> Iterator[Line]:
    """The row of each method and variant; below it the paper's, and the difference."""
    means = values.groupby(level=ROW, sort=False).mean()
    for key, texts in _measured_texts(values, quantity).iterrows():
        start, method, variant = key
        name = row_name(start, method, variant)
        yield "measured", name, texts
        for row, numbers in published:
            if row.method == method and row.start in ("", start) and not variant:
                difference = as_text(means.loc[key] - numbers, quantity.decimals, sign="+")
                yield "published", f"{row.name} (paper)", as_text(numbers, quantity.decimals)
                yield "difference", f"{name} (difference)", difference


def row_name(start: str, method: str, variant: str) -> str:
    name = label(start, method)
    if not variant:
        return name
    return f"{name} ({variant})"


def _measured_texts(values: pd.DataFrame, quantity: Quantity) -> pd.DataFrame:
    """Mean and deviation over seeds; a number of seeds below the paper's; the best methods in bold."""
    by_row = values.groupby(level=ROW, sort=False)
    means = by_row.mean()
    counts = by_row.count()
    few = counts.where(counts.isin(range(1, PAPER_SEEDS)))
    mean_texts = as_text(means, quantity.decimals)
    deviation_texts = as_text(by_row.std(), quantity.decimals, " ± ")
    texts = mean_texts + deviation_texts + as_text(few, 0, " †")
    if not quantity.sign:
        return texts
    return texts.mask(_best(means, quantity), "**" + texts + "**")


def _best(means: pd.DataFrame, quantity: Quantity) -> pd.DataFrame:
    """Where a method is the best of several that have the same start."""
    rivals = quantity.sign * means.drop(SOURCE_ONLY, level="method").round(quantity.decimals)
    by_start = rivals.groupby(level="start")
    best = rivals.eq(by_start.transform("max")) & (by_start.transform("count") > 1)
    return best.reindex(means.index, fill_value=False)


def _reading_notes(values: pd.DataFrame, quantity: Quantity) -> Iterator[str]:
    note = "mean ± sample standard deviation over seeds; the epoch is selected without labels"
    yield f"{note}; best of the methods in bold" if quantity.sign else note
    counts = values.groupby(level=ROW, sort=False).count()
    if counts.isin(range(1, PAPER_SEEDS)).any(axis=None):
        yield "†n: of n seeds"


def _source_notes(others: Sequence[Row]) -> list[str]:
    names_by_source: dict[str, list[str]] = {}
    for row in others:
        names_by_source.setdefault(row.source, []).append(row.name)
    return [f"{', '.join(names)} (others): {source}" for source, names in names_by_source.items()]


def as_text(numbers: Any, decimals: int, prefix: str = "", sign: str = "") -> Any:
    """The numbers of a series or frame as text, "" for NaN."""
    form = f"{prefix}{{:{sign}.{decimals}f}}"
    return numbers.map(form.format).where(numbers.notna(), "")


def selection_table(runs: pd.DataFrame) -> Table | None:
    """Accuracy of the epoch that each of the paper's criteria selects, and the mean of the largest difference between
    these; None if the runs of all methods have no pair and seed in common, or lack an accuracy."""
    scored = compared_everywhere(runs[runs.metrics.map(len) > 2])
    accuracies = pd.DataFrame(index=scored.index)
    for name in CRITERIA:
        accuracies[name] = [_selected_accuracy(metrics[1:], name) for metrics in scored.metrics]
    if accuracies.empty or accuracies.isna().any(axis=None):
        return None
    accuracies["largest change"] = accuracies.max(axis=1) - accuracies.min(axis=1)
    cells = as_text(accuracies.groupby(runs.method, sort=False).mean(), 2)
    notes = ["mean over the pairs and seeds that every method has"]
    return Table("accuracy in % of the epoch that each criterion selects", pd.concat({"measured": cells}), notes)


def _selected_accuracy(epochs: Sequence[Record], criterion: str) -> float:
    scores = [epoch.get(criterion, nan) for epoch in epochs]
    if any(map(isnan, scores)):
        return nan
    return float(epochs[best_epoch(scores, criterion)].get("accuracy", nan))


def mce_table(runs: pd.DataFrame) -> Table | None:
    """Mean corruption error of each method, if all 15 corruptions were run at five severities."""
    errors = {}
    accuracies = measured(runs[runs.severity > 0], ACCURACY)
    for (start, method, _), values in accuracies.groupby(level=ROW, sort=False):
        means = values.groupby(level=["severity", "column"]).mean()
        errors[label(start, method)] = mean_corruption_error(means.unstack("column"))
    cells = pd.DataFrame({"mCE": errors}, dtype=float).dropna()
    if cells.empty:
        return None
    notes = ("mean over seeds; normalised by AlexNet's errors (Hendrycks and Dietterich, ICLR 2019)",)
    title = "mean corruption error in %, 15 corruptions"
    return Table(title, pd.concat({"measured": as_text(cells, 2)}), notes)
