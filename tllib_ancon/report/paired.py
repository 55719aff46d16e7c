"""Which method is above which, run by run: differences between runs that share pair of domains, seed and start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import comb, sqrt
from statistics import fmean, stdev

from tllib_ancon.report.runs import AdaptedRun
from tllib_ancon.report.tables import (
    ACCURACY,
    ECE,
    SOURCE_ONLY,
    USUAL_STARTS,
    Cell,
    Line,
    RowKey,
    Table,
    collect,
    usual_settings,
)

REFINERS = ("elr", "ancon", "ancon-auto")
"""What is added to a base method, and stands alone for self-training's."""

COLUMNS = ("accuracy", "standard error", "runs above", "runs below", "p", "ECE", "standard error of ECE")
NOTES = (
    "mean difference of the runs with the same pair, seed and start, its standard error over these runs, and in how "
    "many of them the first is above the second; a mean over bases or starts counts each pair and seed once",
    "p: two-sided sign test: how likely counts as unequal are if above and below are equally likely; ties are left out",
)

TIE = 1e-9
"""Points: the rounding error of a mean of differences that cancel is smaller, and one image in a million larger."""


def paired_table(runs: Sequence[AdaptedRun], varied: Sequence[str]) -> Table | None:
    """A row for each method beside its start, its base method, and ELR and AnCon on the same base, and for each refiner
    one over all bases; in a sweep, for each variant beside the usual settings; for all of these one over all starts.
    None where fewer than two runs share pair and seed."""
    usual = usual_settings(runs, varied)
    accuracy, ece = (collect(quantity.measure, runs, usual) for quantity in (ACCURACY, ECE))
    lines = []
    for one, other in _compared(accuracy):
        differences = _differences(accuracy, one, other)
        if len(differences) > 1:
            cells = _cells([*differences.values()], [*_differences(ece, one, other).values()])
            lines.append(Line("measured", _label(one, other), cells))
    for start in dict.fromkeys(start for start, _, _ in accuracy):
        lines += _over_bases(start, accuracy, ece)
    lines += _over_starts(accuracy, ece)
    return Table("paired", "differences between runs, accuracy in points", COLUMNS, lines, NOTES) if lines else None


def sign_test(above: int, below: int) -> float:
    r"""The two-sided p-value of the sign test.

    .. math::
        p = \min(1, 2^{1 - n} Σ_{i \le m} \binom{n}{i}),   n = a + b,   m = \min(a, b)

    Args:
        above, below: a and b, how many differences are positive and negative
    """
    count = above + below
    return min(1.0, 2 * sum(comb(count, fewer) for fewer in range(min(above, below) + 1)) / (1 << count))


def _compared(rows: Mapping[RowKey, object]) -> Iterator[tuple[RowKey, RowKey]]:
    for key in rows:
        start, method, settings = key
        if method == SOURCE_ONLY:
            continue
        references = [(start, method, "")] if settings else [(start, name, "") for name in _references(method)]
        yield from ((key, reference) for reference in references if reference in rows)


def _references(method: str) -> list[str]:
    """What a method is compared with: the start, its base, and the other refiners of this base before its own."""
    base, _, refiner = method.rpartition("+")
    if refiner not in REFINERS:
        return [SOURCE_ONLY]
    others = REFINERS[: REFINERS.index(refiner)]
    return [SOURCE_ONLY, base or "self-training", *(f"{base}+{other}" if base else other for other in others)]


Rows = Mapping[RowKey, Mapping[str, Mapping[int, float]]]
"""Row -> pair of domains -> seed -> value."""


def _over_bases(start: str, accuracy: Rows, ece: Rows) -> Iterator[Line]:
    """Refiners beside their bases and beside each other: of each pair and seed the mean difference over the bases that
    were run with both, where these are several."""
    bases = dict.fromkeys(["self-training", *(method.rpartition("+")[0] for _, method, _ in accuracy if "+" in method)])
    for number, one in enumerate(REFINERS):
        for other in ("", *REFINERS[:number]):
            rows = [((start, _refined(base, one), ""), (start, _refined(base, other), "")) for base in bases]
            made = [keys for keys in rows if set(keys) <= accuracy.keys()]
            differences = _mean_differences(accuracy, made)
            if len(made) > 1 and len(differences) > 1:
                label = f"{one} − {other or 'base'}, mean over {len(made)} bases"
                cells = _cells(differences, _mean_differences(ece, made))
                yield Line("measured", label if start in USUAL_STARTS else f"{start}: {label}", cells)


def _over_starts(accuracy: Rows, ece: Rows) -> Iterator[Line]:
    """What several starts were compared in: of each pair and seed the mean difference over the starts."""
    compared: dict[str, list[tuple[RowKey, RowKey]]] = {}
    for one, other in _compared(accuracy):
        compared.setdefault(_label(("", *one[1:]), other), []).append((one, other))
    for label, keys in compared.items():
        differences = _mean_differences(accuracy, keys)
        if len(keys) > 1 and len(differences) > 1:
            cells = _cells(differences, _mean_differences(ece, keys))
            yield Line("measured", f"{label}, mean over {len(keys)} starts", cells)


def _refined(base: str, refiner: str) -> str:
    if not refiner:
        return base
    return refiner if base == "self-training" else f"{base}+{refiner}"


def _mean_differences(rows: Rows, compared: Sequence[tuple[RowKey, RowKey]]) -> list[float]:
    """For each pair and seed that all comparisons have, the mean of their differences."""
    found = [_differences(rows, *keys) for keys in compared]
    shared = set.intersection(*map(set, found)) if found else set()
    return [fmean(differences[place] for differences in found) for place in sorted(shared)]


def _differences(rows: Rows, one: RowKey, other: RowKey) -> dict[tuple[str, int], float]:
    """By pair and seed."""
    if one not in rows or other not in rows:
        return {}
    return {
        (column, seed): value - rows[other][column][seed]
        for column, by_seed in rows[one].items()
        for seed, value in by_seed.items()
        if seed in rows[other].get(column, {})
    }


def _cells(accuracy: Sequence[float], ece: Sequence[float]) -> dict[str, Cell]:
    above, below = sum(value > TIE for value in accuracy), sum(value < -TIE for value in accuracy)
    cells = [
        *(Cell(fmean(accuracy)), Cell(_standard_error(accuracy))),
        *(Cell(above, decimals=0), Cell(below, decimals=0), Cell(sign_test(above, below), decimals=4)),
    ]
    if len(ece) > 1:
        cells += [Cell(fmean(ece), decimals=4), Cell(_standard_error(ece), decimals=4)]
    return dict(zip(COLUMNS, cells, strict=False))


def _standard_error(values: Sequence[float]) -> float:
    return stdev(values) / sqrt(len(values))


def _label(one: RowKey, other: RowKey) -> str:
    start, method, settings = one
    compared = f"{method}, {settings} − usual settings" if settings else f"{method} − {other[1]}"
    return compared if start in ("", *USUAL_STARTS) else f"{start}: {compared}"
