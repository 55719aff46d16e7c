"""Paired differences between methods, over runs with the same pair of domains, seed and start. The pair is the unit of
every error and test, since its seeds share images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import nan

import pandas as pd
from scipy.special import stdtr

from tllib_ancon.laboratory.finished_runs import ROW, label
from tllib_ancon.laboratory.tables import ACCURACY, ECE, SOURCE_ONLY, RowKey, Table, measured, shown

REFINERS = ("elr", "ancon", "ancon-auto")
"""What is added to a base method, and stands alone for self-training's."""

COLUMNS = {"accuracy": 2, "standard error": 2, "pairs": 0, "p": 4, "p by Holm": 4}
COLUMNS |= {"runs above": 0, "runs below": 0, "worst run": 2, "ECE": 4, "standard error of ECE": 4}
"""Column -> digits after the point."""

NOTES = (
    "mean difference and its standard error over pairs or corruptions, after the mean over seeds. With one pair, the "
    "standard error is over its seeds. Below two standard errors a difference is unclear",
    "p: two-sided t-test over the same values, alone and corrected for the number of rows by Holm's method",
    "runs above and below: single runs, those of every base or start for itself; worst run: the smallest difference",
)

Comparisons = Mapping[str, Sequence[tuple[RowKey, RowKey]]]
"""Label -> the rows that are compared, each with the other; of several the mean difference is taken."""


def paired_table(runs: pd.DataFrame, comparisons: Comparisons | None = None) -> Table | None:
    """A row for each comparison, None if there is none. By default each method is compared with its start, its base,
    and ELR with AnCon; in a sweep each variant with the usual settings."""
    accuracy, ece = (measured(runs, quantity).unstack(ROW, sort=False) for quantity in (ACCURACY, ECE))
    found = {}
    for name, compared in (usual_comparisons(accuracy) if comparisons is None else comparisons).items():
        own, calibration = _differences(accuracy, compared), _differences(ece, compared)
        if len(own) > 1:
            units, every, calibrated = _units(own), own.to_numpy(), _units(calibration)
            of_pairs = units.mean(), units.sem(), own.index.unique("column").size, t_test(units), nan
            of_runs = (every > 0).sum(), (every < 0).sum(), every.min()
            found[name] = [*of_pairs, *of_runs, calibrated.mean(), calibrated.sem()]
    if not found:
        return None
    numbers = pd.DataFrame.from_dict(found, orient="index", columns=list(COLUMNS))
    numbers["p by Holm"] = holm(numbers.p)
    cells = pd.DataFrame({name: shown(numbers[name], f"{{:.{digits}f}}") for name, digits in COLUMNS.items()})
    return Table("differences between runs, accuracy in points", pd.concat({"measured": cells}), NOTES)


def usual_comparisons(rows: Iterable[RowKey]) -> dict[str, list[tuple[RowKey, RowKey]]]:
    """The comparisons that :func:`paired_table` makes by default, of the rows that there are."""
    alone: dict[str, list[tuple[RowKey, RowKey]]] = {}
    pooled: dict[tuple[str, str], list[tuple[RowKey, RowKey]]] = {}
    rows = list(rows)
    for start, method, variant in rows:
        refiner = _refiner(method)
        base, before = method.removesuffix(refiner), REFINERS[: REFINERS.index(refiner)] if refiner else ()
        bases = [base.rstrip("+") or "self-training", *(base + other for other in before)] if refiner else []
        for other in [method] if variant else [SOURCE_ONLY, *bases]:
            if method == SOURCE_ONLY or (start, other, "") not in rows:
                continue
            both = (start, method, variant), (start, other, "")
            what = f"{method}, {variant} − usual settings" if variant else f"{method} − {other}"
            alone[label(start, what)] = [both]
            pooled.setdefault((what, "starts"), []).append(both)
            if other in bases:
                what = label(start, f"{refiner} − {_refiner(other) or 'base'}")
                pooled.setdefault((what, "bases"), []).append(both)
    return alone | {f"{what}, mean over {len(many)} {of}": many for (what, of), many in pooled.items() if len(many) > 1}


def t_test(values: pd.Series[float]) -> float:
    r"""The two-sided p-value of Student's t-test that the mean of n ≥ 2 differences is zero.

    .. math::
        p = 2 F_{n - 1}(-|t|),   t = \bar x \sqrt n / s
    """
    error = max(values.sem(), 1e-9)  # points: rounding alone leaves less
    return float(2 * stdtr(len(values) - 1, -abs(values.mean()) / error))


def holm(p_values: pd.Series[float]) -> pd.Series[float]:
    """p-values that hold for all tests together (S. Holm, 1979)."""
    ordered = p_values.sort_values(kind="stable")
    return (ordered * range(len(ordered), 0, -1)).clip(upper=1).cummax().reindex(p_values.index)


def _refiner(method: str) -> str:
    refiner = method.rpartition("+")[2]
    return refiner if refiner in REFINERS else ""


def _differences(values: pd.DataFrame, compared: Sequence[tuple[RowKey, RowKey]]) -> pd.DataFrame:
    if not all(row in values for both in compared for row in both):
        return values.iloc[:0]
    return pd.concat([values[one] - values[other] for one, other in compared], axis=1).dropna()


def _units(differences: pd.DataFrame) -> pd.Series[float]:
    means = differences.mean(axis=1)
    by_pair = means.groupby(level="column").mean()
    return by_pair if len(by_pair) > 1 else means
