"""Paired differences between methods, over runs with the same pair of domains, seed and start. The pair is the unit of
every error and test, since its seeds share images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd
from scipy import stats

from tllib_ancon.laboratory.finished_runs import ROW, label
from tllib_ancon.laboratory.tables import ACCURACY, ECE, SOURCE_ONLY, RowKey, Table, as_text, measured

REFINERS = ("elr", "ancon", "ancon-auto")
"""What is added to a base method, and stands alone for self-training's."""

DECIMALS = {
    "accuracy": 2,
    "standard error": 2,
    "pairs": 0,
    "p": 4,
    "runs above": 0,
    "runs below": 0,
    "worst run": 2,
    "ECE": 4,
    "standard error of ECE": 4,
}
"""Column -> digits after the point."""

NOTES = (
    "mean difference and its standard error over pairs or corruptions, after the mean over seeds. With one pair, the "
    "standard error is over its seeds. Below two standard errors a difference is unclear",
    "p: two-sided t-test over the same values",
    "runs above and below: single runs; worst run: the smallest difference",
)

Pair = tuple[RowKey, RowKey]
"""A row of the tables, and the one that it is compared with."""
Comparisons = Mapping[str, Sequence[Pair]]
"""Label -> the rows that are compared; of several pairs the mean difference is taken."""


def paired_table(runs: pd.DataFrame, comparisons: Comparisons | None = None) -> Table | None:
    """A row for each comparison, None if there is none. By default each method is compared with its start, its base,
    and ELR with AnCon; in a sweep each variant with the usual settings."""
    accuracy = measured(runs, ACCURACY).unstack(ROW, sort=False)
    ece = measured(runs, ECE).unstack(ROW, sort=False)
    compared = comparisons
    if compared is None:
        compared = {pair_label(pair): [pair] for pair in usual_pairs(list(accuracy))}
    rows = {}
    for name, pairs in compared.items():
        differences = _differences(accuracy, pairs)
        if len(differences) > 1:
            rows[name] = _row(differences, _differences(ece, pairs))
    if not rows:
        return None
    numbers = pd.DataFrame.from_dict(rows, orient="index")
    cells = pd.DataFrame({name: as_text(numbers[name], decimals) for name, decimals in DECIMALS.items()})
    return Table("differences between runs, accuracy in points", pd.concat({"measured": cells}), NOTES)


def _row(differences: pd.DataFrame, ece_differences: pd.DataFrame) -> dict[str, float]:
    units = _units(differences)
    ece_units = _units(ece_differences)
    return {
        "accuracy": units.mean(),
        "standard error": units.sem(),
        "pairs": differences.index.unique("column").size,
        "p": _t_test(units),
        "runs above": (differences > 0).to_numpy().sum(),
        "runs below": (differences < 0).to_numpy().sum(),
        "worst run": differences.min(axis=None),
        "ECE": ece_units.mean(),
        "standard error of ECE": ece_units.sem(),
    }


def _differences(values: pd.DataFrame, pairs: Sequence[Pair]) -> pd.DataFrame:
    """Difference of each pair (column) in each place (row) that has all of them."""
    return pd.concat([values[row] - values[reference] for row, reference in pairs], axis=1).dropna()


def _units(differences: pd.DataFrame) -> pd.Series[float]:
    """The mean difference of each pair of domains; of a single pair, that of each seed."""
    means = differences.mean(axis=1)
    by_pair = means.groupby(level="column").mean()
    if len(by_pair) == 1:
        return means
    return by_pair


def pair_label(pair: Pair) -> str:
    (start, method, variant), (_, reference, _) = pair
    if variant:
        return label(start, f"{method}, {variant} − usual settings")
    return label(start, f"{method} − {reference}")


def usual_pairs(rows: Sequence[RowKey]) -> Iterator[Pair]:
    for row in rows:
        start, method, variant = row
        for name in _references(method, variant):
            reference = (start, name, "")
            if reference in rows:
                yield row, reference


def _references(method: str, variant: str) -> Iterator[str]:
    """The methods that a method is compared with: its start, its base, and the refiners before its own."""
    if method == SOURCE_ONLY:
        return
    if variant:
        yield method
        return
    yield SOURCE_ONLY
    refiner = method.rpartition("+")[2]
    if refiner in REFINERS:
        prefix = method.removesuffix(refiner)
        yield prefix.rstrip("+") or "self-training"
        for earlier in REFINERS[: REFINERS.index(refiner)]:
            yield prefix + earlier


def _t_test(values: pd.Series[float]) -> float:
    r"""The two-sided p-value of Student's t-test that the mean of n ≥ 2 differences is zero.

    .. math::
        p = 2 F_{n - 1}(-|t|),   t = \bar x \sqrt n / s
    """
    error = max(values.sem(), 1e-9)  # points: rounding alone leaves less
    return float(2 * stats.t.sf(abs(values.mean() / error), len(values) - 1))
