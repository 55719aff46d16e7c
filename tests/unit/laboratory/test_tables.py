"""Tables of a report: means, deviations and paired differences are those of the runs, beside the published rows."""

from statistics import fmean, stdev

import pandas as pd
import pytest
from scipy.stats import ttest_1samp

from tests.support.fabricated import change_metrics, frame_of, without_scores, write_run, write_source
from tllib_ancon.laboratory.tables import ACCURACY, AVERAGE, ECE, paired_table, selection_table, table


def numbers(made, name, *columns, kind="measured"):
    """The numbers that a row shows, without their deviations."""
    assert made is not None
    cells = [made.cells.at[(kind, name), column] for column in columns]
    return [float(cell.strip("*").split()[0]) for cell in cells]


def texts(made, name, kind="measured"):
    return made.cells.loc[kind, name].tolist()


def names(made, kind="measured"):
    return [name for shown, name in made.cells.index if shown == kind]


def bold(made):
    """Names of the rows in which a number is bold."""
    is_bold = made.cells.map(lambda text: "*" in text).any(axis=1)
    return [name for _, name in made.cells.index[is_bold]]


def noted(made, words):
    return any(words in note for note in made.notes)


@pytest.fixture
def two_seeds(tmp_path):
    for method, gain in (("self-training", 0), ("ancon", 5)):
        for seed in (0, 1):
            for pair, accuracy in (("A-D", 60.0), ("D-A", 40.0)):
                last = accuracy + gain + 4 * seed
                write_run(tmp_path, method, pair, seed, accuracies=(30.0 + seed, 35.0, last))
    return frame_of(tmp_path)


# Means and published rows


def test_mean_and_deviation_over_seeds(two_seeds):
    made = table(ACCURACY, two_seeds)
    spread = f"± {stdev([65.0, 69.0]):.2f}"
    assert list(made.cells) == ["A-D", "D-A", AVERAGE, "seeds"]
    assert texts(made, "ancon") == [*[f"**{mean}.00 {spread}**" for mean in (67, 47, 57)], "2"]
    assert numbers(made, "source-only", "A-D") == [30.5]


def test_the_best_method_of_each_start_is_marked_and_the_start_is_not(two_seeds, tmp_path):
    assert bold(table(ACCURACY, two_seeds)) == ["ancon"]
    calibration = table(ECE, two_seeds)
    assert bold(calibration) == ["self-training"]
    assert numbers(calibration, "self-training", "A-D") == [0.062]
    assert noted(calibration, "15 equal-width bins")
    for start, accuracy in (("cdan", 90.0), ("mdd", 50.0)):
        folder = tmp_path / "starts" / start
        write_run(folder, "self-training", accuracies=(40.0, accuracy))
        write_run(folder, "ancon", accuracies=(40.0, accuracy + 1))
        write_source(folder, "A", 0, method=start)
    assert bold(table(ACCURACY, frame_of(tmp_path / "starts"))) == ["cdan: ancon", "mdd: ancon"]


def test_the_published_rows_of_methods_that_were_run_and_the_difference_to_them(two_seeds):
    means = {"self-training": 61.0, "ancon": 62.0, "gce": 63.0}
    rows = {(method, ""): {"D-A": mean - 11, "A-D": mean + 9, AVERAGE: mean} for method, mean in means.items()}
    printed = pd.DataFrame.from_dict(rows, orient="index")
    made = table(ACCURACY, two_seeds, printed)
    assert list(made.cells) == ["D-A", "A-D", AVERAGE, "seeds"]
    assert names(made, "published") == ["self-training (paper)", "ancon (paper)"]
    assert numbers(made, "ancon (paper)", AVERAGE, kind="published") == [62]
    assert numbers(made, "ancon (difference)", "A-D", AVERAGE, kind="difference") == [67 - 71, 57 - 62]
    part = table(ACCURACY, two_seeds[two_seeds.pair == "A-D"], printed)
    assert list(part.cells) == ["A-D", "seeds"]


def test_a_row_with_a_hole_has_no_average_and_one_without_some_seeds_no_deviation(two_seeds, tmp_path):
    write_run(tmp_path, "elr", "A-D")
    for pair, seed in (("A-D", 0), ("D-A", 0), ("D-A", 1)):
        write_run(tmp_path, "gce", pair, seed, accuracies=(30.0, 50.0 + 10 * seed))
    made = table(ACCURACY, frame_of(tmp_path))
    assert texts(made, "elr") == ["60.00", "", "", "1"]
    assert texts(made, "gce")[-2:] == ["50.00", "1"]  # of the one seed that has all columns


# Selection


def test_selection_by_each_criterion(tmp_path):
    run = write_run(tmp_path, "ancon", accuracies=(10.0, 30.0, 20.0))
    made = selection_table(frame_of(tmp_path))
    assert list(made.cells) == ["infomax", "corr_c", "mean_entropy", "largest change"]
    assert numbers(made, "ancon", *made.cells) == [20.0, 30.0, 20.0, 10.0]
    change_metrics(run, without_scores(1))
    assert selection_table(frame_of(tmp_path)) is None


# Paired differences


def test_the_pair_is_the_unit_and_its_seeds_are_averaged(tmp_path):
    gains = {"self-training": (0, 0, 0, 0), "elr": (1, 2, 3, 4), "ancon": (5, -1, 3, 8), "ancon-auto": (0, 0, 0, 0)}
    places = [("A-D", 0), ("A-D", 1), ("D-A", 0), ("D-A", 1)]
    for method, of_method in gains.items():
        for (pair, seed), gain in zip(places, of_method, strict=True):
            write_run(tmp_path, method, pair, seed, accuracies=(30.0, 35.0, 50.0 + gain))
    made = paired_table(frame_of(tmp_path))
    by_pair = [(5 - 1 - 1 - 2) / 2, (3 - 3 + 8 - 4) / 2]
    columns = ("accuracy", "standard error", "pairs", "p", "worst run")
    standard_error = stdev(by_pair) / 2**0.5
    p_value = ttest_1samp(by_pair, 0).pvalue
    expected = [fmean(by_pair), standard_error, 2, p_value, -3]
    assert numbers(made, "ancon − elr", *columns) == pytest.approx(expected, abs=0.005)
    assert numbers(made, "ancon − source-only", "accuracy") == [23.75]
    assert numbers(made, "ancon-auto − self-training", *columns) == [0, 0, 2, 1, 0]
    labels = names(made)
    assert labels.count("ancon-auto − ancon") == labels.count("elr − self-training") == 1
    assert "self-training − self-training" not in labels
