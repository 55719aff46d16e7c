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
    "p by Holm": 4,
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
    "p: two-sided t-test over the same values, alone and corrected for the number of rows by Holm's method",
    "runs above and below: single runs, those of every base or start for itself; worst run: the smallest difference",
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
    compared = _usual_comparisons(list(accuracy)) if comparisons is None else comparisons
    rows = {}
    for name, pairs in compared.items():
        differences = _differences(accuracy, pairs)
        if len(differences) > 1:
            units = _units(differences)
            ece_units = _units(_differences(ece, pairs))
            rows[name] = {
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
    if not rows:
        return None
    numbers = pd.DataFrame.from_dict(rows, orient="index")
    numbers["p by Holm"] = _holm(numbers.p)
    cells = pd.DataFrame({name: as_text(numbers[name], decimals) for name, decimals in DECIMALS.items()})
    return Table("differences between runs, accuracy in points", pd.concat({"measured": cells}), NOTES)


def _differences(values: pd.DataFrame, pairs: Sequence[Pair]) -> pd.DataFrame:
    """Difference of each pair (column) in each place (row) that has all of them."""
    differences = {}
    for row, reference in pairs:
        if row not in values or reference not in values:
            return values.iloc[:0]
        differences[row, reference] = values[row] - values[reference]
    return pd.concat(differences, axis=1).dropna()


def _units(differences: pd.DataFrame) -> pd.Series[float]:
    """The mean difference of each pair of domains; of a single pair, that of each seed."""
    means = differences.mean(axis=1)
    by_pair = means.groupby(level="column").mean()
    if len(by_pair) == 1:
        return means
    return by_pair


def _usual_comparisons(rows: Sequence[RowKey]) -> Comparisons:
    single: dict[str, list[Pair]] = {}
    pooled: dict[tuple[str, str], list[Pair]] = {}  # text and what the mean is over -> pairs
    for pair in _usual_pairs(rows):
        (start, method, variant), (_, reference, _) = pair
        text = f"{method} − {reference}"
        if variant:
            text = f"{method}, {variant} − usual settings"
        single[label(start, text)] = [pair]
        pooled.setdefault((text, "starts"), []).append(pair)
        if _refiner(method) and reference not in (method, SOURCE_ONLY):
            of_refiners = label(start, f"{_refiner(method)} − {_refiner(reference) or 'base'}")
            pooled.setdefault((of_refiners, "bases"), []).append(pair)
    comparisons = dict(single)
    for (text, over), pairs in pooled.items():
        if len(pairs) > 1:
            comparisons[f"{text}, mean over {len(pairs)} {over}"] = pairs
    return comparisons


def _usual_pairs(rows: Sequence[RowKey]) -> Iterator[Pair]:
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
    refiner = _refiner(method)
    if refiner:
        prefix = method.removesuffix(refiner)
        yield prefix.rstrip("+") or "self-training"
        for earlier in REFINERS[: REFINERS.index(refiner)]:
            yield prefix + earlier


def _refiner(method: str) -> str:
    refiner = method.rpartition("+")[2]
    if refiner not in REFINERS:
        return ""
    return refiner


def _t_test(values: pd.Series[float]) -> float:
    r"""The two-sided p-value of Student's t-test that the mean of n ≥ 2 differences is zero.

    .. math::
        p = 2 F_{n - 1}(-|t|),   t = \bar x \sqrt n / s
    """
    error = max(values.sem(), 1e-9)  # points: rounding alone leaves less
    return float(2 * stats.t.sf(abs(values.mean() / error), len(values) - 1))


def _holm(p_values: pd.Series[float]) -> pd.Series[float]:
    """p-values that hold for all tests together (S. Holm, 1979)."""
    ordered = p_values.sort_values(kind="stable")
    num_tests_left = range(len(ordered), 0, -1)
    corrected = (ordered * num_tests_left).clip(upper=1).cummax()
    return corrected.reindex(p_values.index)
