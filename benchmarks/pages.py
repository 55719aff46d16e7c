"""Tables of pages, and the page of claims, from the rows of studies.

A page has them between ``<!-- rows: STUDY TABLE [VIEWS [EPOCHS]] -->`` and ``<!-- end -->``. ``VIEWS`` is 1, 2, or
``most``: two where the family has mirrors.
"""

import re
from functools import partial
from pathlib import Path

import pandas as pd

from benchmarks import statistics, tomllib
from benchmarks.families import NO_SHIFT, WEAK
from benchmarks.race import __main__ as race
from benchmarks.speed import cost
from benchmarks.streams import __main__ as streams
from benchmarks.study import read
from benchmarks.tables import markdown
from benchmarks.toolkit import table as toolkit
from tllib_ancon.runtime.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- rows: ([^>]+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
CELL = ["family", "source", "target", "kind", "network", "seed"]
UNIT = ["family", "source", "target", "network"]
SOURCE_MODEL, ADABN = "source model", "adabn"
CLAIMS = Path(__file__).parent / "claims.toml"
BENCHMARKS = Path(__file__).parent
ROWS_OF_OTHERS = {
    "cost": BENCHMARKS / "speed" / "cost.csv",
    "toolkit": BENCHMARKS / "toolkit" / "runs.csv",
    "streams": BENCHMARKS / "streams" / "runs.csv",
    "orders": BENCHMARKS / "streams" / "runs.csv",
    "race_cifar10_c": BENCHMARKS / "race" / "race.csv",
    "race_office31": BENCHMARKS / "race" / "race.csv",
}
CLAIMS_PAGE = ROOT / "docs" / "claims.md"


def write(check):
    """Write the tables of all pages, or with ``check`` raise an error that names the pages that differ."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
    stale = []
    for page in pages:
        text = page.read_text(encoding="utf-8")
        if written(text) != text:
            stale.append(str(page.relative_to(ROOT)))
            if not check:
                page.write_text(written(text), encoding="utf-8")
    _report(stale, check, "python -m benchmarks page")


def write_claims(check):
    """Write ``docs/claims.md`` in the same way."""
    text = CLAIMS_PAGE.read_text(encoding="utf-8")
    start, end = "<!-- claims -->\n", "<!-- end -->"
    before, _, after = text.partition(start)
    claims = before + start + claims_table() + end + after.partition(end)[2]
    if claims != text and not check:
        CLAIMS_PAGE.write_text(claims, encoding="utf-8")
    _report(["docs/claims.md"] if claims != text else [], check, "python -m benchmarks claims")


def _report(stale, check, command):
    if check and stale:
        raise UserError(f"{', '.join(stale)}: differs from the rows. Run {command}")
    for page in stale:
        print(f"{page}: written")


def written(text):
    """A page with its tables made again, minus signs as typeset."""
    return BLOCK.sub(lambda block: block[1] + table(*block[2].split()) + block[4], text)


def table(study, name=None, views="1", epochs=None):
    """The table of a study, or one of ``OTHERS``."""
    if name is None:
        return OTHERS[study](pd.read_csv(ROWS_OF_OTHERS[study])).replace(" -", " −").replace("(-", "(−")
    rows = of_views(read(study), views)
    if epochs is not None:
        rows = rows[(rows.epochs == int(epochs)) | (rows.method == ADABN)]
    return TABLES[name](rows).replace(" -", " −").replace("| nan |", "|  |")


def of_views(rows, views):
    """Rows that predict from this number of views."""
    number = rows.groupby(CELL).views.transform("max") if views == "most" else int(views)
    return rows[rows.views == number]


def complete(rows):
    """Rows of cells that every method has."""
    return rows[rows.groupby(CELL).method.transform("nunique") == rows.method.nunique()]


def with_references(rows):
    """Rows with the source model and AdaBN as methods of their own."""
    cells = rows.drop_duplicates(CELL)
    source_models = cells.assign(method=SOURCE_MODEL, selected=cells.start, ece=float("nan"))
    parts = [source_models]
    if ADABN not in set(rows.method):
        parts.append(cells.assign(method=ADABN, selected=cells.adabn, ece=float("nan")).dropna(subset="selected"))
    return pd.concat([*parts, rows])


def by_family(rows):
    """Mean accuracy of each family and the plain mean over the test sets, with a shift; and without one."""
    rows = with_references(complete(rows))
    shifted = rows[rows.target != NO_SHIFT]
    families = shifted.pivot_table("selected", "method", "family", sort=False)
    means = shifted.groupby("method", sort=False).selected.mean()
    unshifted = rows[rows.target == NO_SHIFT].groupby("method").selected.mean().reindex(means.index)
    lines = []
    for method in means.index:
        values = (*families.loc[method], means[method], unshifted[method])
        lines.append([method, *("" if pd.isna(value) else f"{value:.1f}" for value in values)])
    count = len(shifted.drop_duplicates(CELL))
    return markdown(["", *families, f"mean of {count}", "no shift"], lines, numbers=True)


def by_kind(rows):
    """Mean accuracy by family and kind of target, in all families together below."""
    rows = with_references(rows)
    means = rows.pivot_table("selected", ["family", "kind"], "method", sort=False)
    lines = [[", ".join(place), *(f"{value:.1f}" for value in values)] for place, values in means.iterrows()]
    of_all = rows.pivot_table("selected", "kind", "method", sort=False)[means.columns]
    lines += [[f"all, {kind}", *(f"{value:.1f}" for value in values)] for kind, values in of_all.iterrows()]
    return markdown(["", *means.columns], lines, numbers=True)


def differences(rows):
    """Differences to the references that are there over units, and harm over all runs."""
    rows = with_references(complete(rows))
    references = {SOURCE_MODEL: "source model", ADABN: "AdaBN", "self-training": "self-training", "shot": "SHOT"}
    present = {method: title for method, title in references.items() if method in set(rows.method)}
    lines = []
    for method in rows.method.unique():
        if method == SOURCE_MODEL:
            continue
        beside = [difference(rows, method, reference) for reference in present]
        numbers = [f"{item.mean:+.1f} ± {item.error:.1f}" if item else "" for item in beside]
        lines.append([method, *numbers, *harm_of(rows[rows.method == method])])
    header = ["", *(f"− {title}" for title in present.values()), "harm", "worst run"]
    return markdown(header, lines, numbers=True)


def of_weak_models(rows, is_weak):
    """The same of source models that were trained for a tenth of the steps, or of the others."""
    return differences(rows[rows.network.str.endswith(WEAK) == is_weak])


def by_length(rows):
    """Differences to the source model over units: a row a method and a column a number of epochs."""
    lengths = {epochs: with_references(complete(part)) for epochs, part in rows.groupby("epochs")}
    lines = []
    for method in rows.method.unique():
        gains = [difference(part, method, SOURCE_MODEL) for part in lengths.values()]
        lines.append([method, *(f"{gain.mean:+.1f} ± {gain.error:.1f}" for gain in gains)])
    return markdown(["", *(f"{epochs} epochs" for epochs in lengths)], lines, numbers=True)


def harm_of(rows):
    """How many runs end below the source model, and the worst difference to it."""
    gains = rows.selected - rows.start
    return f"{(gains < -statistics.HARM).sum()} of {len(gains)}", f"{gains.min():+.1f}"


def difference(rows, method, beside, column="selected"):
    """The paired difference of two methods over units with a shift: means over kinds of targets and seeds."""
    shifted = rows[rows.target != NO_SHIFT]
    cells = shifted.pivot_table(column, CELL, "method")
    if method == beside or not {method, beside} <= set(cells):
        return None
    units = (cells[method] - cells[beside]).dropna().groupby(UNIT).mean().reset_index(name="difference")
    sources = units.family + units.source + units.network
    return statistics.estimate(units.difference, sources, units.family + units.target)


def by_pair(rows):
    """Mean accuracy of each pair of domains over kinds of targets and seeds."""
    rows = with_references(complete(rows))
    pairs = rows.source + " → " + rows.target
    means = rows.assign(pair=pairs).pivot_table("selected", "method", "pair", sort=False)
    lines = [[method, *(f"{value:.1f}" for value in values)] for method, values in means.iterrows()]
    return markdown(["", *means], lines, numbers=True)


def by_cell(rows):
    """Mean accuracy of each cell over seeds: a row a cell and a column a method."""
    rows = with_references(rows)
    names = rows.source + " → " + rows.target + ", " + rows.network + ", " + rows.kind
    means = rows.assign(cell=rows.family + ": " + names).pivot_table("selected", "cell", "method", sort=False)
    lines = [
        [cell, *("" if pd.isna(value) else f"{value:.1f}" for value in values)] for cell, values in means.iterrows()
    ]
    return markdown(["", *means], lines, numbers=True)


def over_seeds(rows):
    """Mean and standard deviation over seeds, of studies of one pair of domains."""
    rows = with_references(complete(rows))
    lines = []
    for method, own in rows.groupby("method", sort=False):
        accuracy = f"{own.selected.mean():.1f} ± {own.selected.std():.1f}"
        lines.append([method, accuracy, "" if own.ece.isna().all() else f"{own.ece.mean():.3f}"])
    return markdown(["", "accuracy (%)", "ECE (15 bins)"], lines, numbers=True)


def matrix(rows):
    """Accuracy of source models: a row a source and a column a target."""
    targets = rows.target.where(rows.target != NO_SHIFT, rows.source)
    means = rows.assign(target=targets).pivot_table("start", "source", "target", sort=False)
    lines = [[source, *(f"{value:.0f}" for value in values)] for source, values in means[means.index].iterrows()]
    return markdown(["source → target", *means.index], lines, numbers=True)


def relative_time(rows):
    """Processor time of each method relative to self-training on the same cell: median and quartiles."""
    seconds = rows.pivot_table("seconds", CELL, "method", sort=False)
    quartiles = seconds.div(seconds["self-training"], axis=0).quantile([0.5, 0.25, 0.75]).T
    lines = [[method, *(f"{value:.2f}" for value in values)] for method, values in quartiles.iterrows()]
    return markdown(["", "median", "first quartile", "third quartile"], lines, numbers=True)


TABLES = {
    "accuracy": by_family,
    "kinds": by_kind,
    "differences": differences,
    "weak": partial(of_weak_models, is_weak=True),
    "trained": partial(of_weak_models, is_weak=False),
    "pairs": by_pair,
    "cells": by_cell,
    "seeds": over_seeds,
    "matrix": matrix,
    "time": relative_time,
    "length": by_length,
}
OTHERS = {
    "cost": cost.table,
    "toolkit": toolkit.table,
    "streams": streams.table,
    "orders": streams.table_of_orders,
    "race_cifar10_c": partial(race.table, work="cifar10-c"),
    "race_office31": partial(race.table, work="office31"),
}
"""Tables of benchmarks that are no studies, each of the rows beside its page."""


def claims_table():
    """A row a claim: the verdict by Holm's correction over all claims, and what it rests on."""
    claims = tomllib.loads(CLAIMS.read_text(encoding="utf-8"))["claim"]
    estimates = [estimate_of(claim) for claim in claims]
    corrected = statistics.holm([item.p for item in estimates])
    lines = []
    for claim, item, p in zip(claims, estimates, corrected, strict=True):
        better = -item.mean if claim.get("column") == "ece" else item.mean
        form = "+.3f" if claim.get("column") == "ece" else "+.1f"
        number = f"{item.mean:{form}} ± {item.error:{form[1:]}}"
        evidence = f"[{claim['study']}](../benchmarks/{claim['page']})"
        lines.append([claim["text"], statistics.verdict(better, p), number, item.units, f"{p:.2g}", evidence])
    header = ["claim", "holds", "difference", "units", "p after Holm", "study"]
    return markdown(header, lines).replace("| -", "| −")


def estimate_of(claim):
    rows = of_views(read(claim["study"]), claim.get("views", 1))
    rows = rows[rows.epochs == claim.get("epochs", rows.epochs)]
    if "where" in claim:
        rows = rows.query(claim["where"])
    item = difference(
        with_references(complete(rows)), claim["method"], claim["beside"], claim.get("column", "selected")
    )
    if item is None:
        raise UserError(f"{CLAIMS.name}: {claim['text']!r} has no rows of {claim['method']} and {claim['beside']}")
    return item
