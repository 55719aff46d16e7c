"""Tables of runs: mean and standard deviation over seeds, beside what the paper printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from statistics import fmean, stdev
from typing import Any

import pandas as pd

from tllib_ancon.evaluation import NUM_BINS
from tllib_ancon.paper.numbers import Row, mean_corruption_error
from tllib_ancon.report.runs import PLACE, ROW, compared_everywhere, label
from tllib_ancon.selection import CRITERIA, PAPER_CRITERIA, best_epoch

PAPER_SEEDS = 3
AVERAGE = "average"
SOURCE_ONLY = "source-only"
LARGEST_CHANGE = "largest change"


@dataclass
class Cell:
    """One number: a mean over ``seeds`` runs with its sample standard deviation, or one that somebody printed."""

    mean: float
    deviation: float | None = None
    seeds: int | None = None
    best: bool = False
    decimals: int = 2


@dataclass(frozen=True)
class Line:
    """One line of a table; ``kind`` is measured, published, difference (measured - published) or other."""

    kind: str
    label: str
    cells: Mapping[str, Cell]
    source: str = ""


@dataclass(frozen=True)
class Table:
    """What a report shows."""

    name: str  # short, for file names
    title: str
    columns: Sequence[str]  # in order, an average among them if there is one
    lines: Sequence[Line]
    notes: Sequence[str] = ()  # how to read it, what deviates from the paper, and where others printed their rows


@dataclass(frozen=True)
class Quantity:
    """A number of a run, such as accuracy or ECE."""

    name: str  # its column in a frame; of accuracy by class that is ``per_class_accuracy``
    title: str  # with its unit
    higher_is_better: bool | None = True  # None where no method is the best by it
    notes: Sequence[str] = ()
    decimals: int = 2
    unit: float = 1.0  # what the frame's numbers are multiplied by
    printed_unit: float = 1.0  # what the paper's numbers are multiplied by


_BINS = f"ECE with {NUM_BINS} equal-width bins over [0, 1]; the paper does not state its number of bins"
_UNLABELLED = "no label was used: this number does not say how many predictions are right"
_VOTES = "images that vote, in % of a batch, mean over the selected epoch"
_THRESHOLD = "threshold δ of the confidence at the end of the selected epoch"

ACCURACY = Quantity("accuracy", "accuracy in %")
ECE = Quantity("ece", f"ECE, {NUM_BINS} bins", False, (_BINS,), decimals=4, printed_unit=0.01)
CLASS_ACCURACY = Quantity("class_accuracy", "accuracy by class in %")
WITH_LABELS = (ACCURACY, ECE)
WITHOUT_LABELS = (
    Quantity("infomax", "InfoMax of the images held out, in nats", None, ("higher is better", _UNLABELLED), 4),
    Quantity("votes", _VOTES, None, (_UNLABELLED,), unit=100.0),
    Quantity("threshold", _THRESHOLD, None, (_UNLABELLED,), 4),
)

RowKey = tuple[str, str, str]
"""Start, method and variant."""


def measured(runs: pd.DataFrame, quantity: Quantity, classes: Sequence[str] = ()) -> dict[RowKey, pd.Series[float]]:
    """The numbers of each row of a table by their place: column, severity and seed. Rows of one start stand together,
    that of its source models first. Accuracy by class has a column for each class, ``classes`` in the order of labels.
    """
    parts = []
    for prefix, row in (("start_", {"method": SOURCE_ONLY, "variant": ""}), ("", {})):
        part = runs[[*ROW, *PLACE]].assign(**row)
        if quantity is CLASS_ACCURACY:
            values = runs[f"{prefix}per_class_accuracy"].map(lambda value: value if isinstance(value, list) else [])
            names = values.map(lambda value: classes if len(classes) == len(value) else range(len(value)))
            part = part.assign(column=[list(map(str, own)) for own in names], value=values).explode(["column", "value"])
        else:
            part["value"] = quantity.unit * runs[prefix + quantity.name]
        parts.append(part)
    found = pd.concat(parts).sort_values("start", kind="stable").dropna(subset="value").astype({"value": float})
    numbers = found.groupby([*ROW, *PLACE], sort=False).value.last()
    return {row: own.droplevel(ROW) for row, own in numbers.groupby(level=ROW, sort=False)}


def table(quantity: Quantity, runs: pd.DataFrame, published: Sequence[Row] = (), others: Sequence[Row] = ()) -> Table:
    """Rows are starts, methods and variants, each above the paper's and their difference, and below them all the rows
    of others; columns are pairs, corruptions or classes."""
    printed = list(published[0].values) if published else []
    values = measured(runs, quantity, printed)
    found = dict.fromkeys(name for own in values.values() for name in own.index.get_level_values("column"))
    columns = [*(name for name in printed if name in found), *(name for name in found if name not in printed)]
    whole, average = bool(printed) and set(columns) == set(printed), [AVERAGE] * (len(columns) > 1)

    def as_printed(kind: str, row: Row) -> Line:
        cells = {name: Cell(quantity.printed_unit * row.values[name]) for name in columns if name in row.values}
        if average and whole and row.average is not None:
            cells[AVERAGE] = Cell(quantity.printed_unit * row.average)
        elif average and len(columns) == len(cells):
            cells[AVERAGE] = Cell(fmean(cell.mean for cell in cells.values()))
        name = f"{row.start}: {row.method}" if row.start else row.method
        return Line(kind, f"{name}, seed {row.seed}" if row.seed else name, cells, row.source)

    rows = {row: _summary(own, columns) for row, own in values.items()}
    _mark_best(rows, quantity)
    lines = []
    for (start, method, variant), cells in rows.items():
        name = label(start, method)
        lines.append(Line("measured", f"{name} ({variant})" if variant else name, cells))
        for row in published:
            if not variant and row.method == method and row.start in ("", start):
                line = as_printed("published", row)
                both = [column for column in line.cells if column in cells]
                differences = {column: Cell(cells[column].mean - line.cells[column].mean) for column in both}
                lines += [line, Line("difference", name, differences)]
    lines += [as_printed("other", row) for row in others]
    ranked = "; best of the methods in bold" if quantity.higher_is_better is not None else ""
    notes = [f"mean ± sample standard deviation over seeds; the epoch is selected without labels{ranked}"]
    if any((own.groupby(level="column").size() < PAPER_SEEDS).any() for own in values.values()):
        notes.append("†n: of n seeds")
    notes += quantity.notes
    if average and printed and not whole:
        notes.append("averages, the printed rows' too, are over the columns shown")
    shown = [line for line in lines if line.cells]
    sources: dict[str, list[str]] = {}
    for line in shown:
        if line.kind == "other":
            sources.setdefault(line.source, []).append(line.label)
        for cell in line.cells.values():
            cell.decimals = quantity.decimals
    notes += [f"{', '.join(labels)} (others): {source}" for source, labels in sources.items()]
    return Table(quantity.name, quantity.title, [*columns, *average], shown, notes)


def accuracies_by_criterion(runs: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of the epoch that each criterion (a column) selects in each run (a row) without training again, of the
    runs with two epochs to choose from that can be compared, and max - min over the criteria that the paper takes; NaN
    where that epoch or a score is not on record."""

    def chosen(epochs: Sequence[Mapping[str, Any]], name: str) -> float:
        scores = [epoch.get(name, nan) for epoch in epochs]
        return nan if any(map(isnan, scores)) else epochs[best_epoch(scores, name)].get("accuracy", nan)

    scored = compared_everywhere(runs.loc[[len(run.metrics) > 2 for run in runs.run]])
    found = [[chosen(run.metrics[1:], name) for name in CRITERIA] for run in scored.run]
    accuracies = pd.DataFrame(found, scored.index, list(CRITERIA), float)
    paper = accuracies[list(PAPER_CRITERIA)]
    accuracies.insert(len(PAPER_CRITERIA), LARGEST_CHANGE, paper.max(axis=1, skipna=False) - paper.min(axis=1))
    return accuracies


def selection_table(runs: pd.DataFrame) -> Table | None:
    """Accuracy of the epoch that each criterion selects, and by how much the paper's three disagree; None where no run
    has two epochs to choose from, or all runs have on record what fewer than two criteria choose."""
    found = accuracies_by_criterion(runs).dropna(axis=1)
    if found.empty or len(found.columns) < 2:
        return None
    notes = ["mean over the pairs and seeds that every method has"]
    if LARGEST_CHANGE in found:
        paper = ", ".join(PAPER_CRITERIA)
        notes.append(f"the {LARGEST_CHANGE} is the mean over runs of max - min over the paper's criteria: {paper}")
    means = found.groupby(runs.method, sort=False).agg(fmean)
    lines = [Line("measured", str(method), dict(row.map(Cell))) for method, row in means.iterrows()]
    return Table("selection", "accuracy in % of the epoch that each criterion selects", list(means), lines, notes)


def mce_table(runs: pd.DataFrame) -> Table | None:
    """Mean corruption error of each method, if all 15 corruptions were run at five severities."""
    lines = []
    for (_, method, _), values in measured(runs[runs.severity > 0], ACCURACY).items():
        means = values.groupby(level=["column", "severity"]).agg(fmean)
        error = mean_corruption_error({name: own.droplevel(0).to_dict() for name, own in means.groupby(level="column")})
        if error is not None:
            lines.append(Line("measured", method, {"mCE": Cell(error)}))
    notes = ("mean over seeds; normalised by AlexNet's errors (Hendrycks and Dietterich, ICLR 2019)",)
    return Table("mce", "mean corruption error in %, 15 corruptions", ("mCE",), lines, notes) if lines else None


def _summary(values: pd.Series[float], columns: Sequence[str]) -> dict[str, Cell]:
    """The means of a row over its repeats, and their average where it has all columns."""
    by_repeat = values.unstack("column")
    cells = {name: _cell(by_repeat[name].dropna()) for name in columns if name in by_repeat}
    if 1 < len(columns) == len(cells):
        if by_repeat.notna().all(axis=None):
            cells[AVERAGE] = _cell([fmean(row) for row in by_repeat.to_numpy()])
        else:
            fewest = min(cell.seeds or 0 for cell in cells.values())
            cells[AVERAGE] = Cell(fmean(cell.mean for cell in cells.values()), None, fewest)
    return cells


def _cell(values: Sequence[float] | pd.Series[float]) -> Cell:
    return Cell(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


def _mark_best(rows: Mapping[RowKey, Mapping[str, Cell]], quantity: Quantity) -> None:
    """Mark the best mean of the methods from one start in each column, to the shown digits, where several compete."""
    rivals: dict[tuple[str, str], list[Cell]] = {}
    for (start, method, _), cells in rows.items():
        for name, cell in cells.items() if method != SOURCE_ONLY else ():
            rivals.setdefault((start, name), []).append(cell)
    for own in rivals.values() if quantity.higher_is_better is not None else ():
        best = (max if quantity.higher_is_better else min)(round(cell.mean, quantity.decimals) for cell in own)
        for cell in own:
            cell.best = len(own) > 1 and round(cell.mean, quantity.decimals) == best
