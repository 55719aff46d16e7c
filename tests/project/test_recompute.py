"""A reader with pandas gets the numbers of README and of the claims from the rows: nothing here uses our own code."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

ROOT = Path(__file__).resolve().parents[2]
CELL = ["family", "source", "target", "kind", "network", "seed"]


def rows_of(study, views=1):
    rows = pd.read_csv(ROOT / "benchmarks" / "results" / f"{study}.csv")
    rows = rows[rows.views == views]
    return rows[rows.groupby(CELL).method.transform("nunique") == rows.method.nunique()]


def table_below(page, heading):
    """Cells of the first table below a heading, by the first cell of each row."""
    text = (ROOT / page).read_text(encoding="utf-8").partition(heading)[2]
    lines = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)[0].replace("−", "-").splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return {row[0]: dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[2:]}


def units(rows, method, beside):
    """The difference of two methods for each pair of domains with a shift: the mean over kinds and seeds."""
    shifted = rows[rows.target != "none"]
    accuracy = shifted.pivot_table("selected", CELL, "method")
    accuracy["source model"] = shifted.groupby(CELL).start.first()
    accuracy["adabn"] = accuracy.get("adabn", shifted.groupby(CELL).adabn.first())
    differences = (accuracy[method] - accuracy[beside]).dropna()
    return differences.groupby(["family", "source", "target", "network"]).mean()


def summary(differences):
    """Mean, standard error and p-value: units that share a source or a target are one cluster."""
    found = []
    for names in (["family", "source", "network"], ["family", "target"]):
        sums = (differences - differences.mean()).groupby(names).sum()
        clusters = len(sums)
        if clusters > 1:
            found.append((np.sqrt(clusters / (clusters - 1) * (sums**2).sum()) / len(differences), clusters))
    error, clusters = max(found)
    return differences.mean(), error, 2 * stats.t.sf(abs(differences.mean()) / error, clusters - 1)


def test_the_differences_and_the_harm_of_readme():
    rows = rows_of("judge_again")
    printed = table_below("README.md", "<!-- rows: judge_again differences -->")
    for method, cells in printed.items():
        if method == "adabn":
            continue  # no method of the rows
        mean, error, _ = summary(units(rows, method, "source model"))
        gains = rows[rows.method == method].selected - rows[rows.method == method].start
        assert cells["− source model".replace("−", "-")] == f"{mean:+.1f} ± {error:.1f}"
        assert cells["harm"] == f"{(gains < -1.5).sum()} of {len(gains)}"
        assert cells["worst run"] == f"{gains.min():+.1f}"


CLAIMS = {
    "AnCon improves self-training on Office-31, 128 pixels": ("office31_128", "ancon", "self-training"),
    "AnCon improves self-training from CDAN and MDD models": ("cdan_mdd", "ancon", "self-training"),
    "the old default improves AdaBN on Office-31, 128 pixels": ("office31_128", "default", "adabn"),
    "the default improves the source model on fonts, which judge it": ("judge_again", "default", "source model"),
}


@pytest.mark.parametrize("text", CLAIMS)
def test_a_claim(text):
    study, method, beside = CLAIMS[text]
    differences = units(rows_of(study), method, beside)
    mean, error, p = summary(differences)
    cells = table_below("docs/claims.md", "<!-- claims -->")[text]
    assert cells["difference"] == f"{mean:+.1f} ± {error:.1f}"
    assert int(cells["units"]) == len(differences)
    holds = {"yes": mean > 0, "no": mean < 0, "unclear": True}
    assert holds[cells["holds"]]
    assert float(cells["p after Holm"]) >= float(f"{p:.2g}")  # a correction never lowers it


def test_the_verdicts_are_those_of_holm_over_the_whole_page():
    claims = (ROOT / "benchmarks" / "claims.toml").read_text(encoding="utf-8")
    printed = table_below("docs/claims.md", "<!-- claims -->")
    assert len(printed) == len(set(re.findall(r'^text = "(.*)"', claims, re.MULTILINE)))
    for cells in printed.values():
        assert (cells["holds"] == "unclear") == (float(cells["p after Holm"]) >= 0.05)
