"""Tables of runs: mean and standard deviation over seeds, beside what the paper printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from statistics import fmean

import pandas as pd

from tllib_ancon.evaluation import NUM_BINS
from tllib_ancon.paper.numbers import Row, mean_corruption_error
from tllib_ancon.report.runs import PLACE, ROW, compared_everywhere, label
from tllib_ancon.selection import CRITERIA, PAPER_CRITERIA, best_epoch

PAPER_SEEDS = 3
AVERAGE = "average"
SOURCE_ONLY = "source-only"
LARGEST_CHANGE = "largest change"
KINDS = {"measured": "", "published": " (paper)", "difference": " (difference)", "other": " (others)"}


@dataclass(frozen=True)
class Cell:
    """One number: a mean over ``seeds`` runs with its sample standard deviation, or one that somebody printed."""

    mean: float
    deviation: float = nan
    seeds: int = PAPER_SEEDS
    best: bool = False
    form: str = ".2f"

    @property
    def text(self) -> str:
        """``65.10 ± 0.40``, with ``†2`` where seeds are fewer than the paper's."""
        spread = "" if isnan(self.deviation) else f" ± {self.deviation:{self.form}}"
        few = f" †{self.seeds}" if self.seeds < PAPER_SEEDS else ""
        return f"{self.mean:{self.form}}{spread}{few}"


@dataclass(frozen=True)
class Line:
    """One line of a table; ``kind`` is one of :data:`KINDS`."""

    kind: str
    label: str
    cells: Mapping[str, Cell]
    source: str = ""

    @property
    def name(self) -> str:
        return self.label + KINDS[self.kind]


@dataclass(frozen=True)
class Table:
    """What a report shows."""

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

    def cell(self, mean: float, deviation: float = nan, seeds: float = PAPER_SEEDS, best: bool = False) -> Cell:
        return Cell(mean, deviation, int(seeds), best, f".{self.decimals}f")


_BINS = f"ECE with {NUM_BINS} equal-width bins over [0, 1]; the paper does not state its number of bins"
_UNLABELLED = "no label was used: this number does not show how many predictions are right"
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
    rows = measured(runs, quantity, printed)
    if not rows:
        return Table(quantity.title, (), ())
    values = pd.concat(rows, names=ROW).unstack("column", sort=False)
    columns = [*(name for name in printed if name in values), *(name for name in values if name not in printed)]
    averaged, whole = len(columns) > 1, {*columns} == {*printed}
    if averaged:
        values[AVERAGE] = values.mean(axis=1, skipna=False)
    shown = [*columns, AVERAGE] if averaged else columns

    def as_printed(kind: str, row: Row) -> Line:
        known = {name: row.values[name] for name in columns if name in row.values}
        if averaged and whole and row.average is not None:
            known[AVERAGE] = row.average
        elif averaged and len(known) == len(columns):
            known[AVERAGE] = fmean(known.values())
        name = ": ".join(filter(None, (row.start, row.method))) + (f", seed {row.seed}" if row.seed else "")
        cells = {column: quantity.cell(quantity.printed_unit * value) for column, value in known.items()}
        return Line(kind, name, cells, row.source)

    lines = []
    for (start, method, variant), cells in _cells(values[shown], quantity):
        called = label(start, method)
        lines.append(Line("measured", f"{called} ({variant})" if variant else called, cells))
        for row in published:
            if not variant and row.method == method and row.start in ("", start):
                line = as_printed("published", row)
                form, both = f"+.{quantity.decimals}f", line.cells.keys() & cells.keys()
                differences = {name: Cell(cells[name].mean - line.cells[name].mean, form=form) for name in both}
                lines += [line, Line("difference", called, differences)]
    lines = [line for line in (*lines, *(as_printed("other", row) for row in others)) if line.cells]
    ranked = "; best of the methods in bold" if quantity.higher_is_better is not None else ""
    notes = [f"mean ± sample standard deviation over seeds; the epoch is selected without labels{ranked}"]
    if (values[columns].groupby(level=ROW).count().replace(0, PAPER_SEEDS) < PAPER_SEEDS).any(axis=None):
        notes.append("†n: of n seeds")
    notes += quantity.notes
    if averaged and printed and not whole:
        notes.append("averages, the printed rows' too, are over the columns shown")
    sources: dict[str, list[str]] = {}
    for line in lines:
        if line.kind == "other":
            sources.setdefault(line.source, []).append(line.label)
    notes += [f"{', '.join(labels)} (others): {source}" for source, labels in sources.items()]
    return Table(quantity.title, shown, lines, notes)


def _cells(values: pd.DataFrame, quantity: Quantity) -> Iterator[tuple[RowKey, dict[str, Cell]]]:
    """The mean, deviation and number of repeats of each row, by column. The best mean of the methods from one start,
    to the shown digits, is marked where several compete."""
    by_row = values.groupby(level=ROW, sort=False)
    means, deviations, counts = by_row.mean(), by_row.std(), by_row.count()
    methods = means.index.get_level_values("method") != SOURCE_ONLY
    rivals = means[methods & (quantity.higher_is_better is not None)].round(quantity.decimals)
    of_start = rivals.groupby(level="start")
    best = rivals.eq(of_start.transform("max" if quantity.higher_is_better else "min"))
    best = (best & (of_start.transform("count") > 1)).reindex(means.index, fill_value=False)
    for row in means.index:
        columns = zip(values, *(found.loc[row] for found in (means, deviations, counts, best)), strict=True)
        yield row, {name: quantity.cell(*numbers) for name, *numbers in columns if not isnan(numbers[0])}


def accuracies_by_criterion(runs: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of the epoch that each criterion (column) selects in each run (row) with at least two epochs, and max -
    min over the paper's criteria. NaN if that epoch or a score was not recorded."""

    def chosen(epochs: Sequence[Mapping[str, float]], name: str) -> float:
        scores = [epoch.get(name, nan) for epoch in epochs]
        return nan if any(map(isnan, scores)) else epochs[best_epoch(scores, name)].get("accuracy", nan)

    scored = compared_everywhere(runs.loc[[len(run.metrics) > 2 for run in runs.run]])
    found = [[chosen(run.metrics[1:], name) for name in CRITERIA] for run in scored.run]
    accuracies = pd.DataFrame(found, scored.index, list(CRITERIA), float)
    paper = accuracies[list(PAPER_CRITERIA)]
    accuracies.insert(len(PAPER_CRITERIA), LARGEST_CHANGE, paper.max(axis=1, skipna=False) - paper.min(axis=1))
    return accuracies


def selection_table(runs: pd.DataFrame) -> Table | None:
    """Accuracy of the epoch that each criterion selects, and the largest difference between the paper's three. None
    without a run of two epochs and two recorded criteria."""
    found = accuracies_by_criterion(runs).dropna(axis=1)
    if found.empty or len(found.columns) < 2:
        return None
    notes = ["mean over the pairs and seeds that every method has"]
    if LARGEST_CHANGE in found:
        paper = ", ".join(PAPER_CRITERIA)
        notes.append(f"the {LARGEST_CHANGE} is the mean over runs of max - min over the paper's criteria: {paper}")
    means = found.groupby(runs.method, sort=False).mean()
    lines = [Line("measured", str(method), dict(row.map(Cell))) for method, row in means.iterrows()]
    return Table("accuracy in % of the epoch that each criterion selects", list(means), lines, notes)


def mce_table(runs: pd.DataFrame) -> Table | None:
    """Mean corruption error of each method, if all 15 corruptions were run at five severities."""
    lines = []
    for (_, method, _), values in measured(runs[runs.severity > 0], ACCURACY).items():
        means = values.groupby(level=["column", "severity"]).mean()
        error = mean_corruption_error({name: own.droplevel(0).to_dict() for name, own in means.groupby(level="column")})
        if error is not None:
            lines.append(Line("measured", method, {"mCE": Cell(error)}))
    notes = ("mean over seeds; normalised by AlexNet's errors (Hendrycks and Dietterich, ICLR 2019)",)
    return Table("mean corruption error in %, 15 corruptions", ("mCE",), lines, notes) if lines else None
