"""Tables of a report: means and deviations are those of the runs, beside the published rows."""

from statistics import stdev

import pandas as pd
import pytest

from tests.support.fabricated import frame_of, write_run
from tllib_ancon.laboratory.tables import AVERAGE, table


def numbers(made, name, *columns):
    """The numbers that a row shows, without their deviations."""
    return [float(cell.split()[0]) for cell in made.loc[name, list(columns)]]


@pytest.fixture
def two_seeds(tmp_path):
    for method, gain in (("self-training", 0), ("ancon", 5)):
        for seed in (0, 1):
            for pair, accuracy in (("A-D", 60.0), ("D-A", 40.0)):
                last = accuracy + gain + 4 * seed
                write_run(tmp_path, method, pair, seed, accuracies=(30.0 + seed, 35.0, last))
    return frame_of(tmp_path)


def test_mean_and_deviation_over_seeds(two_seeds):
    made = table("accuracy", two_seeds)
    spread = f"± {stdev([65.0, 69.0]):.2f}"
    assert list(made) == ["A-D", "D-A", AVERAGE, "seeds"]
    assert made.loc["ancon"].tolist() == [f"67.00 {spread}", f"47.00 {spread}", f"57.00 {spread}", "2"]
    assert numbers(made, "source-only", "A-D") == [30.5]
    assert numbers(table("ece", two_seeds), "self-training", "A-D") == [0.062]


def test_the_published_rows_of_methods_that_were_run(two_seeds):
    means = {"self-training": 61.0, "ancon": 62.0, "gce": 63.0}
    rows = {(method, ""): {"D-A": mean - 11, "A-D": mean + 9, AVERAGE: mean} for method, mean in means.items()}
    printed = pd.DataFrame.from_dict(rows, orient="index")
    made = table("accuracy", two_seeds, printed)
    assert [*made.index] == [
        "source-only",
        "self-training",
        "self-training (paper)",
        "ancon",
        "ancon (paper)",
    ]
    assert numbers(made, "ancon (paper)", "A-D", "D-A", AVERAGE) == [71, 51, 62]
    three = pd.concat([printed, printed[["A-D"]].rename(columns={"A-D": "W-A"})], axis=1)
    assert table("accuracy", two_seeds, three).at["ancon (paper)", AVERAGE] == ""
    assert numbers(table("ece", two_seeds, printed), "ancon (paper)", "A-D") == [0.71]


def test_a_row_with_a_hole_has_no_average_and_one_without_some_seeds_no_deviation(two_seeds, tmp_path):
    write_run(tmp_path, "elr", "A-D")
    for pair, seed in (("A-D", 0), ("D-A", 0), ("D-A", 1)):
        write_run(tmp_path, "gce", pair, seed, accuracies=(30.0, 50.0 + 10 * seed))
    cells = table("accuracy", frame_of(tmp_path))
    assert cells.loc["elr"].tolist() == ["60.00", "", "", "1"]
    assert cells.loc["gce"].tolist()[-2:] == ["50.00", "1"]  # of the one seed that has all columns
