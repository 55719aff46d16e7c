"""Tables of runs: mean and standard deviation over seeds, beside what the paper printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tllib_ancon.laboratory.finished_runs import PLACE, ROW, compared_everywhere, label
from tllib_ancon.laboratory.published import Row
from tllib_ancon.measures.evaluation import NUM_BINS
from tllib_ancon.measures.selection import CRITERIA, best_epoch

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

    name: str  # its column in a frame
    title: str  # with its unit
    sign: int = 1  # 1 where higher is better, -1 where lower is
    notes: Sequence[str] = ()
    decimals: int = 2
    printed_unit: float = 1.0  # what the paper's numbers are multiplied by


_BINS = f"ECE with {NUM_BINS} equal-width bins over [0, 1]; the paper does not state its number of bins"
ACCURACY = Quantity("accuracy", "accuracy in %")
ECE = Quantity("ece", f"ECE, {NUM_BINS} bins", -1, (_BINS,), decimals=4, printed_unit=0.01)
CLASS_ACCURACY = Quantity("class_accuracy", "accuracy by class in %")

RowKey = tuple[str, str, str]
"""Start, method and variant."""
Line = tuple[str, str, "pd.Series[str]"]
"""A row of a table: its kind, its name and its texts by column."""


def measured(runs: pd.DataFrame, quantity: Quantity, classes: Sequence[str] = ()) -> pd.Series[float]:
    """The numbers of a table by :data:`ROW` and :data:`PLACE`; those of source models come first.

    Args:
        classes (sequence): names of the columns of accuracies by class
    """
    sources = runs.assign(value=runs[f"start_{quantity.name}"], method=SOURCE_ONLY, variant="")
    numbers = pd.concat([sources, runs.assign(value=runs[quantity.name])])[[*ROW, *PLACE, "value"]]
    if quantity is CLASS_ACCURACY:
        names = numbers.value.map(lambda values: classes if len(classes) == len(values) else range(len(values)))
        numbers = numbers.assign(column=names).explode(["column", "value"]).astype({"column": str})
    numbers = numbers.dropna(subset="value").astype({"value": float}).sort_values("start", kind="stable")
    return numbers.groupby([*ROW, *PLACE], sort=False).value.last()


def table(quantity: Quantity, runs: pd.DataFrame, published: Sequence[Row] = (), others: Sequence[Row] = ()) -> Table:
    """Rows are starts, methods and variants, each above the paper's and their difference, and below them all the rows
    of others; columns are pairs, corruptions or classes. The best method of each start is bold."""
    printed_columns: Sequence[str] = []
    if published:
        printed_columns = list(published[0].values)
    values = _by_column(measured(runs, quantity, printed_columns), printed_columns)
    is_whole = {*values} == {*printed_columns, AVERAGE}
    printed = {row: _printed(row, values, is_whole, quantity) for row in (*published, *others)}
    lines = list(_measured_lines(values, quantity, {row: printed[row] for row in published}))
    lines += [("other", f"{row.name} (others)", as_text(printed[row], quantity.decimals)) for row in others]
    names = pd.MultiIndex.from_tuples([(kind, name) for kind, name, _ in lines])
    texts = pd.DataFrame([cells.tolist() for *_, cells in lines], names, values.columns)
    names_of_others = pd.Series({row: row.name for row in others if printed[row].notna().any()}, dtype=str)
    sources = names_of_others.groupby([row.source for row in names_of_others.index], sort=False).agg(", ".join)
    source_notes = [f"{names} (others): {source}" for source, names in sources.items()]
    notes = [*_reading_notes(values), *quantity.notes, *source_notes]
    return Table(quantity.title, texts[(texts != "").any(axis=1)], notes)


def _by_column(numbers: pd.Series[float], printed_columns: Sequence[str]) -> pd.DataFrame:
    """Columns in the paper's order, then those that the paper lacks; with several, their average at the end."""
    values = numbers.unstack("column", sort=False)
    names = dict.fromkeys([*printed_columns, *values])
    values = values[[name for name in names if name in values]]
    if len(values.columns) > 1:
        values[AVERAGE] = values.mean(axis=1, skipna=False)
    return values


def _printed(row: Row, values: pd.DataFrame, is_whole: bool, quantity: Quantity) -> pd.Series[float]:
    """A published row in the columns of a table; its average only where the table has exactly the paper's columns."""
    numbers = pd.Series(row.values, dtype=float).reindex(values.columns)
    if is_whole and row.average is not None:
        numbers[AVERAGE] = row.average
    return quantity.printed_unit * numbers


def _measured_lines(
    values: pd.DataFrame, quantity: Quantity, published: Mapping[Row, pd.Series[float]]
) -> Iterator[Line]:
    """The row of each method and variant; below it the paper's, and the difference."""
    means = values.groupby(level=ROW, sort=False).mean()
    for key, texts in _measured_texts(values, quantity).iterrows():
        start, method, variant = key
        name = label(start, method, variant)
        yield "measured", name, texts
        for row, numbers in published.items():
            if row.method == method and row.start in ("", start) and not variant:
                difference = as_text(means.loc[key] - numbers, quantity.decimals, sign="+")
                yield "published", f"{row.name} (paper)", as_text(numbers, quantity.decimals)
                yield "difference", f"{name} (difference)", difference


def _measured_texts(values: pd.DataFrame, quantity: Quantity) -> pd.DataFrame:
    """Mean and deviation over seeds; a number of seeds below the paper's; the best methods in bold."""
    by_row = values.groupby(level=ROW, sort=False)
    means = by_row.mean()
    counts = by_row.count()
    few = counts.where(counts.isin(range(1, PAPER_SEEDS)))
    mean_texts = as_text(means, quantity.decimals)
    deviation_texts = as_text(by_row.std(), quantity.decimals, " ± ")
    texts = mean_texts + deviation_texts + as_text(few, 0, " †")
    rivals = quantity.sign * means.drop(SOURCE_ONLY, level="method").round(quantity.decimals)
    by_start = rivals.groupby(level="start")
    best = rivals.eq(by_start.transform("max")) & (by_start.transform("count") > 1)
    return texts.mask(best.reindex(means.index, fill_value=False), "**" + texts + "**")


def _reading_notes(values: pd.DataFrame) -> Iterator[str]:
    yield (
        "mean ± sample standard deviation over seeds; the epoch is selected without labels; best of the methods in bold"
    )
    counts = values.groupby(level=ROW, sort=False).count()
    if counts.isin(range(1, PAPER_SEEDS)).any(axis=None):
        yield "†n: of n seeds"


def as_text(numbers: Any, decimals: int, prefix: str = "", sign: str = "") -> Any:
    """The numbers of a series or frame as text, "" for NaN."""
    form = f"{prefix}{{:{sign}.{decimals}f}}"
    return numbers.map(form.format).where(numbers.notna(), "")


def selection_table(runs: pd.DataFrame) -> Table | None:
    """Accuracy of the epoch that each of the paper's criteria selects, and the mean of the largest difference between
    these; None if the runs of all methods have no pair and seed in common, or lack a score."""
    scored = compared_everywhere(runs)
    accuracies = pd.DataFrame(list(map(_selected_accuracies, scored.metrics)), scored.index)
    if accuracies.empty or accuracies.isna().any(axis=None):
        return None
    accuracies["largest change"] = accuracies.max(axis=1) - accuracies.min(axis=1)
    cells = as_text(accuracies.groupby(runs.method, sort=False).mean(), 2)
    notes = ["mean over the pairs and seeds that every method has"]
    return Table("accuracy in % of the epoch that each criterion selects", pd.concat({"measured": cells}), notes)


def _selected_accuracies(metrics: pd.DataFrame) -> dict[str, float]:
    """Criterion -> accuracy in percent; without the source model, which no criterion selects."""
    epochs = metrics.iloc[1:]
    if len(epochs) < 2 or epochs.isna().any(axis=None):
        return {}
    return {name: epochs.accuracy.iloc[best_epoch(epochs[name].tolist(), name)] for name in CRITERIA}
