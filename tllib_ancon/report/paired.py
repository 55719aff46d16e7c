"""Paired differences between methods, over runs with the same pair of domains, seed and start. The pair is the unit of
every error and test, since its seeds share images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from statistics import fmean, stdev

import pandas as pd
from scipy.special import stdtr

from tllib_ancon.report.runs import PLACE, label
from tllib_ancon.report.tables import ACCURACY, ECE, SOURCE_ONLY, Cell, Line, RowKey, Table, measured

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
    """A row for each comparison, None if there is none. By default each method is compared with its start, its base
    method, and ELR with AnCon on the same base. In a sweep, each variant is compared with the usual settings. Further
    rows pool all bases and all starts."""
    accuracy, ece = measured(runs, ACCURACY), measured(runs, ECE)
    compared = usual_comparisons(accuracy) if comparisons is None else comparisons
    found = {name: _differences(accuracy, rows) for name, rows in compared.items()}
    found = {name: own for name, own in found.items() if len(own) > 1}
    p_values = [t_test(_units(own)) for own in found.values()]
    lines = []
    for (name, own), *p in zip(found.items(), p_values, holm(p_values), strict=True):
        every, pairs = own.to_numpy().ravel(), own.index.get_level_values("column").nunique()
        counts = pairs, *p, int((every > 0).sum()), int((every < 0).sum()), every.min()
        numbers = [*_mean_and_error(_units(own)), *counts]
        calibration = _differences(ece, compared[name])
        numbers += _mean_and_error(_units(calibration)) if len(calibration) > 1 else ()
        columns = zip(COLUMNS.items(), numbers, strict=False)
        cells = {column: Cell(number, form=f".{digits}f") for (column, digits), number in columns}
        lines.append(Line("measured", name, cells))
    return Table("differences between runs, accuracy in points", list(COLUMNS), lines, NOTES) if lines else None


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


def t_test(values: Sequence[float]) -> float:
    r"""The two-sided p-value of Student's t-test that the mean of n ≥ 2 differences is zero.

    .. math::
        p = 2 F_{n - 1}(-|t|),   t = \bar x \sqrt n / s
    """
    mean, error = _mean_and_error(values)
    return float(2 * stdtr(len(values) - 1, -abs(mean) / max(error, 1e-9)))  # points: rounding alone leaves less


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values that hold for all tests together (S. Holm, 1979): the smallest of m times m, the next m - 1, and so on,
    none below the one before it."""
    ordered = pd.Series(p_values, dtype=float).sort_values(kind="stable")
    return list((ordered * range(len(ordered), 0, -1)).clip(upper=1).cummax().sort_index())


def _refiner(method: str) -> str:
    """What is added to the base method; empty where it is one."""
    refiner = method.rpartition("+")[2]
    return refiner if refiner in REFINERS else ""


def _differences(rows: Mapping[RowKey, pd.Series[float]], compared: Sequence[tuple[RowKey, RowKey]]) -> pd.DataFrame:
    """The differences of each comparison, a column, at the places that all of them have."""
    if not all(row in rows for both in compared for row in both):
        return pd.DataFrame()
    return pd.concat([rows[one] - rows[other] for one, other in compared], axis=1).dropna()


def _units(differences: pd.DataFrame) -> list[float]:
    """The mean difference of each pair, or of each seed where there is one pair."""
    pairs = differences.groupby(level="column")
    return [fmean(own.to_numpy().ravel()) for _, own in (pairs if len(pairs) > 1 else differences.groupby(level=PLACE))]


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    return fmean(values), stdev(values) / sqrt(len(values))
