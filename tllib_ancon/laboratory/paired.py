"""Paired differences between methods, over runs with the same pair of domains, seed and start. The pair is the unit of
every error and test, since its seeds share images."""

from __future__ import annotations

from collections.abc import Iterator

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


def paired_table(runs: pd.DataFrame) -> Table | None:
    """A row for each comparison, None if there is none. Each method is compared with its start, its base, and ELR with
    AnCon; in a sweep each variant with the usual settings."""
    accuracy = measured(runs, ACCURACY).unstack(ROW, sort=False)
    ece = measured(runs, ECE).unstack(ROW, sort=False)
    rows = {}
    for row in accuracy:
        start, method, variant = row
        for name in _references(method, variant):
            reference = (start, name, "")
            if reference in accuracy:
                differences = (accuracy[row] - accuracy[reference]).dropna()
                if len(differences) > 1:
                    rows[_label(row, name)] = _scores(differences, (ece[row] - ece[reference]).dropna())
    if not rows:
        return None
    numbers = pd.DataFrame.from_dict(rows, orient="index")
    cells = pd.DataFrame({name: as_text(numbers[name], decimals) for name, decimals in DECIMALS.items()})
    return Table("differences between runs, accuracy in points", pd.concat({"measured": cells}), NOTES)


def _scores(differences: pd.Series[float], ece_differences: pd.Series[float]) -> dict[str, float]:
    units = _units(differences)
    ece_units = _units(ece_differences)
    return {
        "accuracy": units.mean(),
        "standard error": units.sem(),
        "pairs": differences.index.unique("column").size,
        "p": _t_test(units),
        "runs above": (differences > 0).sum(),
        "runs below": (differences < 0).sum(),
        "worst run": differences.min(),
        "ECE": ece_units.mean(),
        "standard error of ECE": ece_units.sem(),
    }


def _units(differences: pd.Series[float]) -> pd.Series[float]:
    """The mean difference of each pair of domains; of a single pair, that of each seed."""
    by_pair = differences.groupby(level="column").mean()
    if len(by_pair) == 1:
        return differences
    return by_pair


def _label(row: RowKey, reference: str) -> str:
    start, method, variant = row
    if variant:
        return label(start, f"{method}, {variant} − usual settings")
    return label(start, f"{method} − {reference}")


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
