"""Tables of runs: means over seeds beside published numbers, paired differences, and the choice of the epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from scipy import stats

from tllib_ancon.laboratory.finished_runs import PLACE, ROW, SOURCE_ONLY, compared_everywhere, label, with_sources
from tllib_ancon.measures.evaluation import NUM_BINS
from tllib_ancon.measures.selection import CRITERIA, best_epoch

AVERAGE = "average"
REFINERS = ("elr", "ancon", "ancon-auto")
"""What is added to a base method, and stands alone for self-training's."""
DECIMALS = {"accuracy": 2, "standard error": 2, "pairs": 0, "p": 4, "worst run": 2, "ECE": 4}
"""Column of the paired differences -> digits after the point."""


@dataclass(frozen=True)
class Table:
    """What a report shows."""

    title: str
    cells: pd.DataFrame  # texts by kind of row (measured, published, difference) and name
    notes: Sequence[str] = ()


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


def measured(runs: pd.DataFrame, quantity: Quantity) -> pd.DataFrame:
    """The numbers of a table by :data:`ROW` and seed, a column for each pair, corruption or class; with those of the
    source models."""
    rows = with_sources(runs)
    if quantity is not CLASS_ACCURACY:
        return _spread_out(rows, quantity.name, "column")
    names = pd.MultiIndex.from_frame(rows[[*ROW, "seed"]])
    return pd.DataFrame(rows[quantity.name].tolist(), names).groupby(level=[*ROW, "seed"], sort=False).mean()


def _spread_out(rows: pd.DataFrame, name: str, columns: str | list[str]) -> pd.DataFrame:
    """The numbers of this name, in the order of the runs."""
    return rows.set_index([*ROW, *PLACE])[name].unstack(columns, sort=False)


def table(quantity: Quantity, runs: pd.DataFrame, published: pd.DataFrame | None = None) -> Table:
    """Rows are starts, methods and variants, each above the paper's and the difference to it; columns are pairs,
    corruptions or classes, and their average. The best method of each start is bold."""
    values = measured(runs, quantity).dropna(axis="columns", how="all")
    if published is None:
        published = pd.DataFrame(columns=values.columns, index=pd.MultiIndex.from_arrays([[], []]))
    columns = [*published.columns.intersection(values.columns), *values.columns.difference(published.columns)]
    values = values[columns]
    if len(columns) > 1:
        values[AVERAGE] = values.mean(axis=1, skipna=False)
    if [*published] != [*values]:  # of which the paper's averages are none
        published = published.drop(columns=AVERAGE, errors="ignore")
    lines = list(_lines(values, quantity, quantity.printed_unit * published))
    texts = pd.DataFrame([of_line for _, of_line in lines]).fillna("")
    texts.index = pd.MultiIndex.from_tuples([name for name, _ in lines])
    notes = [
        "mean ± sample standard deviation over seeds; the epoch is selected without labels; best method in bold",
        "seeds: the fewest of a column",
    ]
    return Table(quantity.title, texts[(texts != "").any(axis=1)], [*notes, *quantity.notes])


def _lines(
    values: pd.DataFrame, quantity: Quantity, published: pd.DataFrame
) -> Iterator[tuple[tuple[str, str], pd.Series[str]]]:
    """The row of each method and variant; below it the paper's, and the difference."""
    means = values.groupby(level=ROW, sort=False).mean()
    for key, texts in _texts(values, means, quantity).iterrows():
        start, method, variant = key
        name = label(start, method, variant)
        yield ("measured", name), texts
        for printed_start in ("", start):
            if (method, printed_start) in published.index and not variant:
                numbers = published.loc[(method, printed_start)].reindex(values.columns)
                yield ("published", f"{name} (paper)"), as_text(numbers, quantity.decimals)
                differences = as_text(means.loc[key] - numbers, quantity.decimals, sign="+")
                yield ("difference", f"{name} (difference)"), differences


def _texts(values: pd.DataFrame, means: pd.DataFrame, quantity: Quantity) -> pd.DataFrame:
    """Mean and deviation over seeds, and the number of seeds; the best methods in bold."""
    deviations = values.groupby(level=ROW, sort=False).std()
    texts = as_text(means, quantity.decimals) + as_text(deviations, quantity.decimals, " ± ")
    rivals = quantity.sign * means.drop(SOURCE_ONLY, level="method").round(quantity.decimals)
    by_start = rivals.groupby(level="start")
    best = rivals.eq(by_start.transform("max")) & (by_start.transform("count") > 1)
    marked = texts.mask(best.reindex(means.index, fill_value=False), "**" + texts + "**")
    counts = values.groupby(level=ROW, sort=False).count()
    return marked.assign(seeds=as_text(counts[counts > 0].min(axis=1), 0))


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


def paired_table(runs: pd.DataFrame) -> Table | None:
    """A row for each comparison, None if there is none: over runs with the same pair of domains, seed and start. The
    pair is the unit of every error and test, since its seeds share images; of a single pair, the seed is."""
    rows = with_sources(runs)
    accuracy = _spread_out(rows, "accuracy", ROW)
    ece = _spread_out(rows, "ece", ROW)
    comparisons = {}
    for start, method, variant in accuracy:
        for reference in _references(method, variant):
            pair = [(start, method, variant), (start, reference, "")]
            if pair[1] in accuracy and len(accuracy[pair].dropna()) > 1:
                name = label(start, method, variant)
                comparisons[f"{name} − {reference}"] = _difference(accuracy[pair], ece[pair])
    if not comparisons:
        return None
    numbers = pd.DataFrame.from_dict(comparisons, orient="index")
    cells = pd.DataFrame({name: as_text(numbers[name], decimals) for name, decimals in DECIMALS.items()})
    notes = [
        "mean difference and its standard error over pairs or corruptions, after the mean over seeds. With one pair, "
        "the standard error is over its seeds. Below two standard errors a difference is unclear",
        "p: two-sided t-test over the same values; worst run: the smallest difference of a single run",
    ]
    return Table("differences between runs, accuracy in points", pd.concat({"measured": cells}), notes)


def _references(method: str, variant: str) -> list[str]:
    """The methods that a method is compared with: its start, its base, and the refiners before its own."""
    if variant:
        return [method]
    if method == SOURCE_ONLY:
        return []
    base, plus, refiner = method.rpartition("+")
    if refiner not in REFINERS:
        return [SOURCE_ONLY]
    earlier_refiners = REFINERS[: REFINERS.index(refiner)]
    return [SOURCE_ONLY, base or "self-training", *[f"{base}{plus}{earlier}" for earlier in earlier_refiners]]


def _difference(accuracy: pd.DataFrame, ece: pd.DataFrame) -> dict[str, float]:
    r"""The first column minus the second, and the p-value of Student's t-test that the mean of n units is zero.

    .. math::
        p = 2 F_{n - 1}(-|t|),   t = \bar x \sqrt n / s
    """
    differences = (accuracy.iloc[:, 0] - accuracy.iloc[:, 1]).dropna()
    units = differences.groupby(level="column").mean()
    num_pairs = len(units)
    if num_pairs == 1:
        units = differences
    statistic = abs(units.mean()) / max(units.sem(), 1e-9)  # points: rounding alone leaves less
    return {
        "accuracy": units.mean(),
        "standard error": units.sem(),
        "pairs": num_pairs,
        "p": 2 * stats.t.sf(statistic, len(units) - 1),
        "worst run": differences.min(),
        "ECE": (ece.iloc[:, 0] - ece.iloc[:, 1]).groupby(level="column").mean().mean(),
    }
