"""A reader with pandas gets the numbers of three pages from the rows: nothing here uses our own code."""

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


def test_the_accuracies_of_the_default():
    rows = rows_of("version_0_1")
    shifted = rows[rows.target != "none"]
    printed = table_below("benchmarks/default.md", "<!-- rows: version_0_1 accuracy -->")
    count = len(shifted[CELL].drop_duplicates())
    for method, cells in printed.items():
        own = shifted[shifted.method == method].selected
        if method == "source model":
            own = shifted.drop_duplicates(CELL).start
        assert cells[f"mean of {count}"] == f"{own.mean():.1f}"


def test_the_differences_and_the_harm_of_readme():
    rows = rows_of("judge")
    printed = table_below("README.md", "<!-- rows: judge differences -->")
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
    "AnCon improves self-training on four small families": ("version_0_1", "ancon", "self-training"),
    "the old default improves the source model on four small families": (
        "version_0_1",
        "default",
        "source model",
    ),
    "the old default improves self-training on four small families": (
        "version_0_1",
        "default",
        "self-training",
    ),
    "the votes improve an earlier default on four small families": ("parts", "default", "ancon-auto, no votes"),
    "the old default improves AdaBN on Office-31, 128 pixels": ("office31_128", "default", "adabn"),
    "the default improves the source model on fonts, which judge it": ("judge", "default", "source model"),
    "the default improves AdaBN on fonts, which judge it": ("judge", "default", "adabn"),
    "the default is better than SHOT on fonts, which judge it": ("judge", "default", "shot"),
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


def test_differences_of_streams_that_its_page_states():
    rows = pd.read_csv(ROOT / "benchmarks" / "streams" / "runs.csv")
    text = " ".join((ROOT / "benchmarks" / "streams" / "README.md").read_text(encoding="utf-8").split())

    def difference(method, other, images=10_000, network="resnet20", mode="continual"):
        own = rows[(rows.network == network) & (rows.images == images) & (rows["mode"] == mode)]
        accuracy = own.pivot_table("accuracy", "corruption", "method")
        values = accuracy[method] - accuracy[other]
        return f"{values.mean():+.1f} ± {values.sem():.1f}".replace("-", "−")

    assert f"`stream-auto` minus `eta` is {difference('stream-auto', 'eta')} points" in text
    assert f"{difference('stream-auto', 'roid')} beside `roid`" in text
    assert f"{difference('stream-auto', 'tent')} beside `tent`" in text
    assert f"{difference('stream-auto', 'eta', 2000)} beside `eta`" in text
    assert f"{difference('stream-auto', 'roid', network='resnet56')} beside `roid`" in text
