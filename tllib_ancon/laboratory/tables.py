"""Tables of runs: mean and standard deviation over seeds, beside what the paper printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

import pandas as pd

from tllib_ancon.evaluation import NUM_BINS
from tllib_ancon.laboratory.finished_runs import PLACE, ROW, compared_everywhere, label
from tllib_ancon.laboratory.published import Row, mean_corruption_error
from tllib_ancon.selection import CRITERIA, best_epoch

PAPER_SEEDS = 3
AVERAGE = "average"
SOURCE_ONLY = "source-only"
LARGEST_CHANGE = "largest change"


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
    higher_is_better: bool | None = True  # None where no method is the best by it
    notes: Sequence[str] = ()
    decimals: int = 2
    unit: float = 1.0  # what the frame's numbers are multiplied by
    printed_unit: float = 1.0  # what the paper's numbers are multiplied by


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


def measured(runs: pd.DataFrame, quantity: Quantity, classes: Sequence[str] = ()) -> pd.Series[float]:
    """The numbers of a table by :data:`ROW` and :data:`PLACE`; those of source models come first."""
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
    numbers = pd.concat(parts).sort_values("start", kind="stable").dropna(subset="value").astype({"value": float})
    return numbers.groupby([*ROW, *PLACE], sort=False).value.last()


def table(quantity: Quantity, runs: pd.DataFrame, published: Sequence[Row] = (), others: Sequence[Row] = ()) -> Table:
    """Rows are starts, methods and variants, each above the paper's and their difference, and below them all the rows
    of others; columns are pairs, corruptions or classes. The best method of each start is bold."""
    printed = list(published[0].values) if published else []
    numbers = measured(runs, quantity, printed)
    if numbers.empty:
        return Table(quantity.title, pd.DataFrame())
    values = numbers.unstack("column", sort=False)
    columns = [*(name for name in printed if name in values), *(name for name in values if name not in printed)]
    averaged, whole, form = len(columns) > 1, {*columns} == {*printed}, f".{quantity.decimals}f"
    values = values[columns]
    if averaged:
        values[AVERAGE] = values.mean(axis=1, skipna=False)
    by_row = values.groupby(level=ROW, sort=False)
    means, few = by_row.mean(), by_row.count().replace(0, PAPER_SEEDS)
    texts = shown(means, f"{{:{form}}}") + shown(by_row.std(), f" ± {{:{form}}}")
    texts += shown(few.where(few < PAPER_SEEDS), " †{:.0f}")
    if quantity.higher_is_better is not None:
        rivals = means[means.index.get_level_values("method") != SOURCE_ONLY].round(quantity.decimals)
        of_start = rivals.groupby(level="start")
        best = rivals.eq(of_start.transform("max" if quantity.higher_is_better else "min"))
        best &= of_start.transform("count") > 1
        texts = texts.mask(best.reindex(means.index, fill_value=False), "**" + texts + "**")

    def as_printed(row: Row) -> pd.Series[float]:
        known = pd.Series(row.values, dtype=float).reindex(columns)
        if averaged:
            known[AVERAGE] = row.average if whole and row.average is not None else known.mean(skipna=False)
        return quantity.printed_unit * known

    lines = []
    for key, own in texts.iterrows():
        start, method, variant = key
        called = label(start, method)
        lines.append(("measured", f"{called} ({variant})" if variant else called, own))
        for row in published:
            if not variant and row.method == method and row.start in ("", start):
                paper = as_printed(row)
                lines.append(("published", f"{row.name} (paper)", shown(paper, f"{{:{form}}}")))
                difference = shown(means.loc[key] - paper, f"{{:+{form}}}")
                lines.append(("difference", f"{called} (difference)", difference))
    sources: dict[str, list[str]] = {}
    for row in others:
        if (paper := as_printed(row)).notna().any():
            lines.append(("other", f"{row.name} (others)", shown(paper, f"{{:{form}}}")))
            sources.setdefault(row.source, []).append(row.name)
    ranked = "; best of the methods in bold" if quantity.higher_is_better is not None else ""
    notes = [f"mean ± sample standard deviation over seeds; the epoch is selected without labels{ranked}"]
    if (few < PAPER_SEEDS).any(axis=None):
        notes.append("†n: of n seeds")
    notes += quantity.notes
    if averaged and printed and not whole:
        notes.append("averages, the printed rows' too, are over the columns shown")
    notes += [f"{', '.join(names)} (others): {source}" for source, names in sources.items()]
    named = pd.MultiIndex.from_tuples([(kind, name) for kind, name, _ in lines])
    cells = pd.DataFrame([own.tolist() for *_, own in lines], named, values.columns)
    return Table(quantity.title, cells[(cells != "").any(axis=1)], notes)


def shown(numbers: Any, form: str) -> Any:
    """The numbers of a series or frame as text, "" for NaN."""
    return numbers.map(form.format).where(numbers.notna(), "")


def accuracies_by_criterion(runs: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of the epoch that each criterion (column) selects in each run (row), and max - min; NaN if unknown."""

    def chosen(epochs: Sequence[Mapping[str, float]], name: str) -> float:
        scores = [epoch.get(name, nan) for epoch in epochs]
        return nan if any(map(isnan, scores)) else epochs[best_epoch(scores, name)].get("accuracy", nan)

    scored = compared_everywhere(runs[runs.metrics.map(len) > 2])
    found = [[chosen(metrics[1:], name) for name in CRITERIA] for metrics in scored.metrics]
    accuracies = pd.DataFrame(found, scored.index, list(CRITERIA), float)
    return accuracies.assign(**{LARGEST_CHANGE: accuracies.max(axis=1, skipna=False) - accuracies.min(axis=1)})


def selection_table(runs: pd.DataFrame) -> Table | None:
    """Accuracy of the epoch that each criterion selects, and the largest difference between these."""
    found = accuracies_by_criterion(runs).dropna(axis=1)
    if found.empty or len(found.columns) < 2:
        return None
    notes = ["mean over the pairs and seeds that every method has"]
    if LARGEST_CHANGE in found:
        paper = ", ".join(CRITERIA)
        notes.append(f"the {LARGEST_CHANGE} is the mean over runs of max - min over the paper's criteria: {paper}")
    means = found.groupby(runs.method, sort=False).mean()
    cells = pd.concat({"measured": shown(means, "{:.2f}")})
    return Table("accuracy in % of the epoch that each criterion selects", cells, notes)


def mce_table(runs: pd.DataFrame) -> Table | None:
    """Mean corruption error of each method, if all 15 corruptions were run at five severities."""
    errors = {}
    for (start, method, _), values in measured(runs[runs.severity > 0], ACCURACY).groupby(level=ROW, sort=False):
        means = values.groupby(level=["column", "severity"]).mean()
        by_corruption = {name: own.droplevel(0).to_dict() for name, own in means.groupby(level="column")}
        errors[label(start, method)] = mean_corruption_error(by_corruption)
    found = pd.DataFrame({"mCE": errors}, dtype=float).dropna()
    notes = ("mean over seeds; normalised by AlexNet's errors (Hendrycks and Dietterich, ICLR 2019)",)
    cells = pd.concat({"measured": shown(found, "{:.2f}")})
    return None if found.empty else Table("mean corruption error in %, 15 corruptions", cells, notes)
