from __future__ import annotations

import pytest

from tllib_ancon.paper.demo import summarize, table

RUNS = {
    "source-only": [(60.0, 0.2), (50.0, 0.3), (55.0, 0.1)],
    "self-training": [(70.0, 0.2), (72.0, 0.1), (77.0, 0.3)],
    "ancon": [(74.0, 0.1), (73.0, 0.1), (84.0, 0.1)],
}


def numbers(seeds: int) -> dict[str, list[dict[str, float]]]:
    return {
        method: [{"accuracy": accuracy, "ece": ece, "epoch": 3} for accuracy, ece in runs[:seeds]]
        for method, runs in RUNS.items()
    }


def test_means_deviations_and_paired_differences() -> None:
    row = summarize(numbers(3))["ancon"]
    assert row["accuracy"] == pytest.approx(77.0)
    assert row["accuracy_deviation"] == pytest.approx(((9 + 16 + 49) / 2) ** 0.5)
    assert row["accuracy_difference"] == pytest.approx((4 + 1 + 7) / 3)
    assert row["accuracy_standard_error"] == pytest.approx((((0 + 9 + 9) / 2) ** 0.5) / 3**0.5)
    assert row["ece_difference"] == pytest.approx(-0.1)
    assert [run["accuracy"] for run in row["per_seed"]] == [74.0, 73.0, 84.0]


def test_the_table_has_a_row_a_method() -> None:
    lines = table(summarize(numbers(3)), "title").splitlines()
    assert lines[0] == "title"
    assert [line.split()[0] for line in lines[3:]] == list(RUNS)
    assert "+4.0 ± 1.7" in lines[-1]
    assert "+" not in lines[4]


def test_one_seed_has_no_spread() -> None:
    summary = summarize(numbers(1))
    assert summary["ancon"]["accuracy_deviation"] is None
    assert "±" not in table(summary, "")
