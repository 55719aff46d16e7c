from __future__ import annotations

from pathlib import Path
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from tests.report.fabricated import write_run, write_source
from tllib_ancon.report.formats import to_csv, to_markdown
from tllib_ancon.report.paired import paired_table, sign_test
from tllib_ancon.report.runs import read_runs
from tllib_ancon.report.tables import Line, Table

GAINS = {"self-training": (0, 0, 0, 0), "elr": (1, 2, 3, 4), "ancon": (5, -1, 3, 1), "ancon-auto": (0, 0, 0, 0)}


@given(above=st.integers(0, 40), below=st.integers(0, 40))
def test_the_sign_test_is_scipys(above: int, below: int) -> None:
    expected = binomtest(above, above + below).pvalue if above + below else 1.0
    assert sign_test(above, below) == pytest.approx(expected)


def made(tmp_path: Path) -> Table:
    for method, gains in GAINS.items():
        runs = [(pair, seed) for pair in ("A-D", "D-A") for seed in (0, 1)]
        for (pair, seed), gain in zip(runs, gains, strict=True):
            write_run(tmp_path, method, pair, seed, accuracies=(30.0, 35.0, 50.0 + gain))
    found = paired_table(read_runs([tmp_path])[0], [])
    assert found is not None
    return found


def line(table: Table, label: str) -> Line:
    (found,) = (line for line in table.lines if line.label == label)
    return found


def test_differences_of_runs_with_one_pair_and_seed(tmp_path: Path) -> None:
    table = made(tmp_path)
    differences = [a - b for a, b in zip(GAINS["ancon"], GAINS["elr"], strict=True)]
    cells = line(table, "ancon − elr").cells
    assert cells["accuracy"].mean == pytest.approx(fmean(differences))
    assert cells["standard error"].mean == pytest.approx(stdev(differences) / 2)
    assert [cells[name].mean for name in ("runs above", "runs below", "p")] == [1, 2, 1.0]
    assert line(table, "ancon − source-only").cells["accuracy"].mean == 22.0
    ties = line(table, "ancon-auto − self-training").cells
    assert [ties[name].mean for name in ("accuracy", "runs above", "runs below", "p")] == [0, 0, 0, 1.0]
    labels = [line.label for line in table.lines]
    assert labels.count("ancon-auto − ancon") == labels.count("elr − self-training") == 1
    assert "self-training − self-training" not in labels
    assert "| ancon − elr | −0.50 |".replace("−0", "-0") in to_markdown(table)
    assert "ancon − elr,measured,-0.50" in to_csv(table)


def test_a_composed_method_is_compared_with_its_base_and_ties_of_other_seeds_are_left_out(tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        write_run(tmp_path, "gce", seed=seed, accuracies=(30.0, 50.0))
        write_run(tmp_path, "gce+elr", seed=seed, accuracies=(30.0, 51.0))
    for seed in (1, 2, 3):
        write_run(tmp_path, "gce+ancon", seed=seed, accuracies=(30.0, 52.0 + seed))
    table = paired_table(read_runs([tmp_path])[0], [])
    assert table is not None
    assert line(table, "gce+ancon − gce").cells["accuracy"].mean == pytest.approx(3.5)
    assert line(table, "gce+ancon − gce+elr").cells["runs above"].mean == 2
    assert line(table, "gce+ancon − gce").cells["p"].mean == 0.5


def test_refiners_are_compared_over_all_bases_that_have_them(tmp_path: Path) -> None:
    gains = {
        "self-training": 0,
        "ancon": 1,
        "elr": 4,
        "gce": 10,
        "gce+ancon": 13,
        "gce+elr": 12,
        "nrc": 7,
        "aad+ancon": 0,
    }
    for method, gain in gains.items():
        for seed in (0, 1, 2):
            write_run(tmp_path, method, seed=seed, accuracies=(30.0, 50.0 + gain + seed * ("ancon" in method)))
    write_run(tmp_path, "ancon", seed=3, accuracies=(30.0, 99.0))
    table = paired_table(read_runs([tmp_path])[0], [])
    assert table is not None
    pooled = line(table, "ancon − base, mean over 2 bases").cells
    assert pooled["accuracy"].mean == pytest.approx(2 + 1)
    assert pooled["standard error"].mean == pytest.approx(1 / 3**0.5)
    assert pooled["runs above"].mean == 3
    assert line(table, "ancon − elr, mean over 2 bases").cells["accuracy"].mean == pytest.approx((-3 + 1) / 2 + 1)
    assert not [made.label for made in table.lines if "ancon-auto" in made.label]


def test_differences_that_cancel_over_bases_are_a_tie(tmp_path: Path) -> None:
    """In floating point their mean is not zero."""
    count, right = 498, {"self-training": 200, "ancon": 201, "gce": 260, "gce+ancon": 259}
    percent = {method: 100 * images / count for method, images in right.items()}
    assert percent["ancon"] - percent["self-training"] + (percent["gce+ancon"] - percent["gce"]) != 0
    for method, accuracy in percent.items():
        for seed in (0, 1):
            write_run(tmp_path, method, seed=seed, accuracies=(30.0, accuracy))
    table = paired_table(read_runs([tmp_path])[0], [])
    assert table is not None
    pooled = line(table, "ancon − base, mean over 2 bases").cells
    assert [pooled[name].mean for name in ("runs above", "runs below", "p")] == [0, 0, 1.0]


def test_starts_are_compared_each_with_its_own_and_variants_with_the_usual_settings(tmp_path: Path) -> None:
    for start, gain in (("cdan", 0.0), ("mdd", 10.0)):
        for seed in (0, 1):
            write_run(tmp_path / start, "ancon", seed=seed, accuracies=(40.0, 50.0 + gain))
            write_source(tmp_path / start, "A", seed, method=start)
    table = paired_table(read_runs([tmp_path])[0], [])
    assert table is not None
    means = {line.label: line.cells["accuracy"].mean for line in table.lines}
    assert means == {
        "cdan: ancon − source-only": 10.0,
        "mdd: ancon − source-only": 20.0,
        "ancon − source-only, mean over 2 starts": 15.0,
    }
    assert line(table, "ancon − source-only, mean over 2 starts").cells["runs above"].mean == 2

    for seed in (0, 1):
        for smoothing, accuracy in ((0.3, 50.0), (0.5, 48.0)):
            write_run(tmp_path / "sweep", "ancon", seed=seed, accuracies=(40.0, accuracy), smoothing=smoothing)
        write_run(tmp_path / "sweep", "ancon", "A-W", seed=seed, accuracies=(40.0, 50.0), smoothing=0.3)
    sweep = paired_table(read_runs([tmp_path / "sweep"])[0], ["smoothing"])
    assert sweep is not None
    assert line(sweep, "ancon, smoothing 0.5 − usual settings").cells["accuracy"].mean == -2.0


def test_one_run_is_no_comparison(tmp_path: Path) -> None:
    write_run(tmp_path, "self-training")
    write_run(tmp_path, "ancon")
    assert paired_table(read_runs([tmp_path])[0], []) is None
    assert paired_table([], []) is None
