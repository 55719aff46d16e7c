from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.assess import table
from benchmarks.left_out.families import FAMILIES
from benchmarks.left_out.table import CELL
from tllib_ancon.assessing import ADAPT_BELOW, ERRORS, LEAVE_FROM

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.fixture
def points() -> pd.DataFrame:
    return pd.read_csv(RESULTS / "assess.csv")


def test_the_package_has_the_errors_and_the_shares_that_all_points_choose(points: pd.DataFrame) -> None:
    for name, ends in ERRORS.items():
        found = table.errors(points[points.grid != "adapted"], name)
        assert np.abs(np.subtract(ends, found)).max() < 0.01, name
    lists = (RESULTS / f"left_out{of}.csv" for of in ("", "_networks", "_corruptions"))
    runs = pd.concat(map(pd.read_csv, lists))
    runs = runs[runs.variant == table.RULE].drop_duplicates(CELL)[[*CELL, "start", "last"]]
    adapted = points[points.grid == "adapted"].merge(runs, on=CELL)
    assert len(adapted) == 77
    assert table.shares(adapted) == (ADAPT_BELOW, LEAVE_FROM)


def test_a_family_is_judged_by_what_the_others_choose(capsys, tmp_path: Path) -> None:
    rows = []
    for family in FAMILIES:
        error = 0.5 if family == "digits" else 0.1
        rows += [
            {"grid": "pairs", "family": family, "accuracy": 0.5, **dict.fromkeys(ERRORS, 0.5 + error * sign)}
            for sign in (-1, 1)
        ]
    pd.DataFrame(rows).to_csv(tmp_path / "points.csv", index=False)
    table.main([str(tmp_path / "points.csv")])
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("| agreement"))
    assert row == "| agreement | 10.0; 100 | 50.0; 0 | 10.0; 100 | 10.0; 100 | -45.0 to +45.0 |"
