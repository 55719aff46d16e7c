"""Tables of runs: means over seeds beside published numbers."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tllib_ancon.laboratory.finished_runs import PLACE, ROW, label
from tllib_ancon.measures.evaluation import NUM_BINS

AVERAGE = "average"
SOURCE_ONLY = "source-only"

TITLES = {
    "accuracy": "accuracy in %",
    "mean_class_accuracy": "mean accuracy of the classes in %",
    "ece": f"ECE, {NUM_BINS} equal-width bins over [0, 1]",
}
"""Score of a run -> what a table of it is called."""
_DECIMALS = {"accuracy": 2, "mean_class_accuracy": 2, "ece": 4}


def table(score: str, runs: pd.DataFrame, published: pd.DataFrame | None = None) -> pd.DataFrame:
    """Texts: rows are starts, methods and variants, each above the paper's; columns are pairs or corruptions, and their
    average. Source models are rows as well."""
    sources = runs.assign(method=SOURCE_ONLY, variant="", **{score: runs[f"start_{score}"]})
    rows = pd.concat([sources.drop_duplicates([*ROW, *PLACE]), runs]).sort_values("start", kind="stable")
    values = rows.set_index([*ROW, *PLACE])[score].unstack("column", sort=False).dropna(axis="columns", how="all")
    if len(values.columns) > 1:
        values[AVERAGE] = values.mean(axis=1, skipna=False)
    if published is None:
        published = pd.DataFrame(index=pd.MultiIndex.from_arrays([[], []]))
    if score == "ece":  # which the paper prints in percent
        published = published / 100
    if {*published} != {*values}:  # of which the paper's average is none
        published = published.drop(columns=AVERAGE, errors="ignore")
    decimals = _DECIMALS[score]
    lines: list[tuple[str, pd.Series[str]]] = []
    for (start, method, variant), texts in _means(values, decimals).iterrows():
        name = label(start, method, variant)
        lines.append((name, texts))
        printed = published[published.index.isin([(method, ""), (method, start)])]
        if len(printed) and not variant:
            lines.append((f"{name} (paper)", _as_text(printed.iloc[0].reindex(values.columns), decimals)))
    names, texts_of_lines = zip(*lines, strict=True)
    return pd.DataFrame(texts_of_lines, names).fillna("")


def _means(values: pd.DataFrame, decimals: int) -> pd.DataFrame:
    """Mean and deviation over seeds as texts, and the number of seeds."""
    by_row = values.groupby(level=ROW, sort=False)
    texts = _as_text(by_row.mean(), decimals) + _as_text(by_row.std(), decimals, " ± ")
    counts = by_row.count()
    return texts.assign(seeds=_as_text(counts[counts > 0].min(axis=1), 0))


def _as_text(numbers: Any, decimals: int, prefix: str = "") -> Any:
    """The numbers of a series or frame as text, "" for NaN."""
    form = f"{prefix}{{:.{decimals}f}}"
    return numbers.map(form.format).where(numbers.notna(), "")
