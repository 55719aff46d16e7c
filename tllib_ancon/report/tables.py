"""Tables of runs: mean and standard deviation over seeds, beside what the paper printed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from tllib_ancon import selection
from tllib_ancon.errors import UserError
from tllib_ancon.evaluation import NUM_BINS
from tllib_ancon.paper.mce import mean_corruption_error
from tllib_ancon.paper.numbers import Row
from tllib_ancon.report.runs import SELECTED, START, AdaptedRun, compared_everywhere

PAPER_SEEDS = 3
AVERAGE = "average"
SOURCE_ONLY = "source-only"
LARGEST_CHANGE = "largest change"
USUAL_STARTS = ("erm", "imagenet", "checkpoint")

Measure = Callable[[AdaptedRun, str], Mapping[str, float]]
"""Column -> number, of a run's start or selected model."""


@dataclass(frozen=True)
class Cell:
    """One number: a mean over ``seeds`` runs with its sample standard deviation, or one that somebody printed; with
    digits of its own where they are not its table's."""

    mean: float
    deviation: float | None = None
    seeds: int | None = None
    best: bool = False
    decimals: int | None = None


@dataclass(frozen=True)
class Line:
    """One line of a table; ``kind`` is measured, published, difference (measured - published) or other."""

    kind: str
    label: str
    cells: Mapping[str, Cell]
    source: str = ""


@dataclass(frozen=True)
class Table:
    """What a report shows.

    Attributes:
        name: short, for file names
        title: what the numbers are
        columns: in order, an average among them if there is one
        lines: in order
        notes: how to read it, and what deviates from the paper
        decimals: digits after the point
    """

    name: str
    title: str
    columns: Sequence[str]
    lines: Sequence[Line]
    notes: Sequence[str] = ()
    decimals: int = 2


@dataclass(frozen=True)
class Comparison:
    """What others printed for the runs of one table."""

    published: Sequence[Row] = ()
    others: Sequence[Row] = ()

    def covers(self, columns: Sequence[str]) -> bool:
        """Whether these are all the columns that the paper prints."""
        return bool(self.published) and set(columns) == set(self.published[0].values)

    def times(self, unit: float) -> Comparison:
        """The same numbers in another unit."""

        def scaled(row: Row) -> Row:
            values = {column: unit * value for column, value in row.values.items()}
            return replace(row, values=values, average=None if row.average is None else unit * row.average)

        return Comparison([scaled(row) for row in self.published], [scaled(row) for row in self.others])


@dataclass(frozen=True)
class Quantity:
    """A number by pair, such as accuracy or ECE.

    Attributes:
        name: short
        title: what it is, with its unit
        measure: takes it from a run
        higher_is_better: which end is better; None where no method is the best by it
        notes: how to read it
        decimals: digits after the point
        printed_unit: the unit of the paper's numbers in that of ours
    """

    name: str
    title: str
    measure: Measure
    higher_is_better: bool | None = True
    notes: Sequence[str] = ()
    decimals: int = 2
    printed_unit: float = 1.0


def by_pair(metric: str, factor: float = 1.0) -> Measure:
    """The measure with one number a run, in the column of its pair or corruption; none where the run lacks it."""

    def measure(run: AdaptedRun, which: str) -> dict[str, float]:
        metrics = run.measured(which)
        return {run.column: factor * metrics[metric]} if metric in metrics else {}

    return measure


def by_class(names: Sequence[str]) -> Measure:
    """The measure with a number a class; ``names`` are in the order of the labels."""

    def measure(run: AdaptedRun, which: str) -> dict[str, float]:
        accuracies = run.measured(which).get("per_class_accuracy", [])
        titles = names if len(names) == len(accuracies) else [str(label) for label in range(len(accuracies))]
        return {name: value for name, value in zip(titles, accuracies, strict=True) if value is not None}

    return measure


_UNLABELLED = ("no label was used: this number does not say how many predictions are right",)

ACCURACY = Quantity("accuracy", "accuracy in %", by_pair("accuracy"))
ECE = Quantity(
    "ece",
    f"ECE, {NUM_BINS} bins",
    by_pair("ece"),
    higher_is_better=False,
    notes=(f"ECE with {NUM_BINS} equal-width bins over [0, 1]; the paper does not state its number of bins",),
    decimals=4,
    printed_unit=0.01,
)
INFOMAX = Quantity(
    "infomax",
    "InfoMax of the images held out, in nats",
    by_pair("infomax"),
    higher_is_better=None,
    notes=("higher is better", *_UNLABELLED),
    decimals=4,
)
VOTES = Quantity(
    "votes",
    "images that vote, in % of a batch, mean over the selected epoch",
    by_pair("votes", factor=100.0),
    higher_is_better=None,
    notes=_UNLABELLED,
)
THRESHOLD = Quantity(
    "threshold",
    "threshold δ of the confidence at the end of the selected epoch",
    by_pair("threshold"),
    higher_is_better=None,
    notes=_UNLABELLED,
    decimals=4,
)
WITH_LABELS, WITHOUT_LABELS = (ACCURACY, ECE), (INFOMAX, VOTES, THRESHOLD)


def table(
    quantity: Quantity, runs: Sequence[AdaptedRun], varied: Sequence[str], compared: Comparison | None = None
) -> Table:
    """Rows are starts, methods and variants; columns are pairs, corruptions or classes.

    Raises:
        UserError: two runs of one method, pair, seed and variant
    """
    compared = (compared or Comparison()).times(quantity.printed_unit)
    values = collect(quantity.measure, runs, usual_settings(runs, varied))
    columns = _columns(values, compared)
    seeds = {len(by_seed) for row in values.values() for by_seed in row.values()}
    measured = {key: _summary(row, columns) for key, row in values.items()}
    best = {start: _best(measured, start, quantity) for start, *_ in measured}
    lines = []
    for key, cells in measured.items():
        marked = cells if key[1] == SOURCE_ONLY else _with_best(cells, best[key[0]], quantity.decimals)
        lines += _lines(key, marked, columns, compared)
    lines += [_printed("other", row, columns, compared) for row in compared.others]
    lines = [line for line in lines if line.cells]
    notes = [*_seed_notes(seeds, ranked=quantity.higher_is_better is not None), *quantity.notes]
    if len(columns) > 1 and compared.published and not compared.covers(columns):
        notes.append("averages, the printed rows' too, are over the columns shown")
    average = (AVERAGE,) if len(columns) > 1 else ()
    return Table(quantity.name, quantity.title, (*columns, *average), lines, notes, quantity.decimals)


def selection_table(runs: Sequence[AdaptedRun]) -> Table | None:
    """Accuracy of the epoch that each criterion selects, and by how much the paper's three disagree; None where no run
    has two epochs to choose from, or all runs have on record what fewer than two criteria choose."""
    scored = compared_everywhere([run for run in runs if run.labelled and len(run.metrics) > 2])
    if not scored:
        return None
    by_method: dict[str, list[dict[str, float]]] = {}
    for run in scored:
        by_method.setdefault(run.method, []).append(accuracies_by_criterion(run))
    shared = set.intersection(*(set(one) for chosen in by_method.values() for one in chosen))
    if len(shared) < 2:
        return None
    paper = [name for name in selection.PAPER_CRITERIA if name in shared]
    others = [name for name in selection.CRITERIA if name in shared and name not in paper]
    lines = []
    for method, chosen in by_method.items():
        cells = {name: Cell(fmean(accuracies[name] for accuracies in chosen)) for name in (*paper, *others)}
        if len(paper) == len(selection.PAPER_CRITERIA):
            cells[LARGEST_CHANGE] = Cell(fmean(map(paper_spread, chosen)))
        lines.append(Line("measured", method, cells))
    has_change = LARGEST_CHANGE in lines[0].cells
    columns = [*paper, *([LARGEST_CHANGE] if has_change else []), *others]
    change = f"the {LARGEST_CHANGE} is the mean over runs of max - min over the paper's criteria: {', '.join(paper)}"
    notes = ("mean over the pairs and seeds that every method has", *([change] if has_change else []))
    return Table("selection", "accuracy in % of the epoch that each criterion selects", columns, lines, notes)


def paper_spread(accuracies: Mapping[str, float]) -> float:
    """Max - min of one run's accuracy over the criteria that the paper takes."""
    return selection.selection_spread({name: accuracies[name] for name in selection.PAPER_CRITERIA})


def accuracies_by_criterion(run: AdaptedRun) -> dict[str, float]:
    """Criterion -> accuracy of the epoch it selects, without training again; without criteria that select an epoch
    whose accuracy is not on record."""
    epochs = run.metrics[1:]
    chosen = {
        name: epochs[selection.best_epoch([line[name] for line in epochs], name)]
        for name in selection.CRITERIA
        if epochs and all(name in line and not math.isnan(line[name]) for line in epochs)
    }
    return {name: line["accuracy"] for name, line in chosen.items() if "accuracy" in line}


def mce_table(runs: Sequence[AdaptedRun]) -> Table | None:
    """Mean corruption error of each method, if all 15 corruptions were run at five severities."""
    accuracies: dict[str, dict[str, dict[int, list[float]]]] = {}
    for run in runs:
        if run.severity is not None and run.labelled:
            for name, which in ((SOURCE_ONLY, START), (run.method, SELECTED)):
                severities = accuracies.setdefault(name, {}).setdefault(run.column, {})
                severities.setdefault(run.severity, []).append(run.measured(which)["accuracy"])
    lines = []
    for method, corruptions in accuracies.items():
        means = {name: {s: fmean(values) for s, values in by.items()} for name, by in corruptions.items()}
        error = mean_corruption_error(means)
        if error is not None:
            lines.append(Line("measured", method, {"mCE": Cell(error)}))
    notes = ("mean over seeds; normalised by AlexNet's errors (Hendrycks and Dietterich, ICLR 2019)",)
    return Table("mce", "mean corruption error in %, 15 corruptions", ("mCE",), lines, notes) if lines else None


def usual_settings(runs: Sequence[AdaptedRun], varied: Sequence[str]) -> dict[str, Any]:
    """The value that most runs have of each setting of a sweep."""
    names = [name.replace("-", "_") for name in varied]
    return {name: max(values, key=values.count) for name in names if (values := [run.config.get(name) for run in runs])}


def variant(run: AdaptedRun, usual: Mapping[str, Any]) -> str:
    """Where this run leaves the usual settings of its sweep."""
    return ", ".join(f"{name} {run.config.get(name)}" for name, value in usual.items() if run.config.get(name) != value)


RowKey = tuple[str, str, str]
"""Start, method and variant."""


def collect(
    measure: Measure, runs: Sequence[AdaptedRun], usual: Mapping[str, Any]
) -> dict[RowKey, dict[str, dict[int, float]]]:
    """Row -> column -> seed -> number; the start models first.

    Raises:
        UserError: two runs of one method, pair, seed and variant
    """
    starts: dict[RowKey, dict[str, dict[int, float]]] = {}
    rows: dict[RowKey, dict[str, dict[int, float]]] = {}
    owners: dict[tuple[RowKey, str, int], AdaptedRun] = {}
    for run in runs:
        for column, value in measure(run, START).items():
            starts.setdefault((run.start, SOURCE_ONLY, ""), {}).setdefault(column, {})[run.seed] = value
        key = (run.start, run.method, variant(run, usual))
        owner = owners.setdefault((key, run.target + run.column, run.seed), run)
        if owner is not run:
            raise UserError(f"{owner.path} and {run.path} hold the same run; give one of them")
        for column, value in measure(run, SELECTED).items():
            rows.setdefault(key, {}).setdefault(column, {})[run.seed] = value
    order = sorted({start for start, *_ in (*starts, *rows)})
    return {key: row for start in order for key, row in {**starts, **rows}.items() if key[0] == start}


def _columns(values: Mapping[Any, Mapping[str, Any]], compared: Comparison) -> list[str]:
    """Those that were run, in the paper's order as far as it has them."""
    found = list(dict.fromkeys(column for row in values.values() for column in row))
    printed = list(compared.published[0].values) if compared.published else []
    return [*(column for column in printed if column in found), *(column for column in found if column not in printed)]


def _summary(row: Mapping[str, Mapping[int, float]], columns: Sequence[str]) -> dict[str, Cell]:
    cells = {column: _cell(list(row[column].values())) for column in columns if column in row}
    if len(columns) > 1 and len(cells) == len(columns):
        shared = set.intersection(*(set(row[column]) for column in columns))
        if all(set(row[column]) == shared for column in columns):
            cells[AVERAGE] = _cell([fmean(row[column][seed] for column in columns) for seed in sorted(shared)])
        else:
            fewest = min(len(row[column]) for column in columns)
            cells[AVERAGE] = Cell(fmean(cells[column].mean for column in columns), None, fewest)
    return cells


def _cell(values: Sequence[float]) -> Cell:
    return Cell(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


def _best(measured: Mapping[RowKey, Mapping[str, Cell]], start: str, quantity: Quantity) -> dict[str, float]:
    """Column -> the best mean of the methods from one start, to the shown digits, where several compete."""
    if quantity.higher_is_better is None:
        return {}
    rows = [cells for key, cells in measured.items() if key[0] == start and key[1] != SOURCE_ONLY]
    best: dict[str, float] = {}
    for column in {column for cells in rows for column in cells}:
        means = [round(cells[column].mean, quantity.decimals) for cells in rows if column in cells]
        if len(means) > 1:
            best[column] = max(means) if quantity.higher_is_better else min(means)
    return best


def _with_best(cells: Mapping[str, Cell], best: Mapping[str, float], decimals: int) -> dict[str, Cell]:
    return {name: replace(cell, best=round(cell.mean, decimals) == best.get(name)) for name, cell in cells.items()}


def _lines(key: RowKey, cells: Mapping[str, Cell], columns: Sequence[str], compared: Comparison) -> list[Line]:
    start, method, settings = key
    label = method if start in USUAL_STARTS else f"{start}: {method}"
    lines = [Line("measured", f"{label} ({settings})" if settings else label, cells)]
    for row in compared.published:
        if not settings and row.method == method and row.start in ("", start):
            printed = _printed("published", row, columns, compared)
            differences = {
                name: Cell(cells[name].mean - cell.mean) for name, cell in printed.cells.items() if name in cells
            }
            lines += [printed, Line("difference", label, differences)]
    return lines


def _printed(kind: str, row: Row, columns: Sequence[str], compared: Comparison) -> Line:
    cells = {column: Cell(row.values[column]) for column in columns if column in row.values}
    if len(columns) > 1 and compared.covers(columns) and row.average is not None:
        cells[AVERAGE] = Cell(row.average)
    elif 1 < len(columns) == len(cells):
        cells[AVERAGE] = Cell(fmean(cell.mean for cell in cells.values()))
    label = f"{row.start}: {row.method}" if row.start else row.method
    return Line(kind, f"{label}, seed {row.seed}" if row.seed else label, cells, row.source)


def _seed_notes(seeds: set[int], ranked: bool) -> list[str]:
    best = "; best of the methods in bold" if ranked else ""
    notes = [f"mean ± sample standard deviation over seeds; the epoch is selected without labels{best}"]
    if seeds and min(seeds) < PAPER_SEEDS:
        notes.append(f"†n: n seeds, fewer than the paper's {PAPER_SEEDS}")
    return notes
