from __future__ import annotations

import json
from pathlib import Path
from statistics import stdev

import pytest

from tests.report.fabricated import write_run, write_source
from tllib_ancon.errors import UserError
from tllib_ancon.paper.numbers import Row
from tllib_ancon.report.runs import read_runs
from tllib_ancon.report.tables import (
    ACCURACY,
    AVERAGE,
    ECE,
    WITHOUT_LABELS,
    Comparison,
    Line,
    Quantity,
    accuracies_by_criterion,
    by_class,
    mce_table,
    selection_table,
    table,
)


def line(made, kind: str, label: str) -> Line:
    (found,) = (line for line in made.lines if (line.kind, line.label) == (kind, label))
    return found


@pytest.fixture
def two_seeds(tmp_path: Path):
    for method, gain in (("self-training", 0), ("ancon", 5)):
        for seed in (0, 1):
            for pair, accuracy in (("A-D", 60.0), ("D-A", 40.0)):
                last = accuracy + gain + 4 * seed
                write_run(tmp_path, method, pair, seed, accuracies=(30.0 + seed, 35.0, last))
    return read_runs([tmp_path])[0]


def test_mean_and_deviation_over_seeds(two_seeds) -> None:
    made = table(ACCURACY, two_seeds, [])
    assert list(made.columns) == ["A-D", "D-A", AVERAGE]
    cells = line(made, "measured", "ancon").cells
    assert (cells["A-D"].mean, cells["A-D"].seeds) == (67.0, 2)
    assert cells["A-D"].deviation == pytest.approx(stdev([65.0, 69.0]))
    assert cells[AVERAGE].mean == 57.0
    assert cells[AVERAGE].deviation == pytest.approx(stdev([55.0, 59.0]))
    assert line(made, "measured", "source-only").cells["A-D"].mean == 30.5


def test_the_best_method_is_marked_and_the_start_is_not(two_seeds) -> None:
    made = table(ACCURACY, two_seeds, [])
    assert all(cell.best for cell in line(made, "measured", "ancon").cells.values())
    for label in ("self-training", "source-only"):
        assert not any(cell.best for cell in line(made, "measured", label).cells.values())
    calibration = table(ECE, two_seeds, [])
    assert line(calibration, "measured", "self-training").cells["A-D"].best
    assert line(calibration, "measured", "self-training").cells["A-D"].mean == pytest.approx(0.062)
    assert any("15 equal-width bins" in note for note in calibration.notes)


def test_each_start_has_a_best_of_its_own(tmp_path: Path) -> None:
    for start, accuracy in (("cdan", 90.0), ("mdd", 50.0)):
        for method, gain in (("self-training", 0.0), ("ancon", 1.0)):
            write_run(tmp_path / start, method, accuracies=(40.0, accuracy + gain))
        write_source(tmp_path / start, "A", 0, method=start)
    made = table(ACCURACY, read_runs([tmp_path])[0], [])
    assert [found.label for found in made.lines if found.cells["A-D"].best] == ["cdan: ancon", "mdd: ancon"]


def test_few_seeds_are_noted(two_seeds, tmp_path: Path) -> None:
    assert any(note.startswith("†n") for note in table(ACCURACY, two_seeds, []).notes)
    runs = [write_run(tmp_path / "three", "ancon", seed=seed) for seed in range(3)]
    assert not any(note.startswith("†n") for note in table(ACCURACY, read_runs(runs)[0], []).notes)


def test_the_published_row_and_the_difference(two_seeds) -> None:
    printed = [
        Row("self-training", {"D-A": 50.0, "A-D": 70.0}, 61.0, "paper"),
        Row("ancon", {"D-A": 51.0, "A-D": 71.0}, 62.0, "paper"),
        Row("gce", {"D-A": 52.0, "A-D": 72.0}, 63.0, "paper"),
    ]
    made = table(ACCURACY, two_seeds, [], Comparison(printed, [Row("shot", {}, 88.0, "elsewhere")]))
    assert list(made.columns) == ["D-A", "A-D", AVERAGE]
    assert line(made, "published", "ancon").cells[AVERAGE].mean == 62.0
    assert line(made, "difference", "ancon").cells["A-D"].mean == pytest.approx(67.0 - 71.0)
    assert line(made, "difference", "ancon").cells[AVERAGE].mean == pytest.approx(57.0 - 62.0)
    assert line(made, "other", "shot").cells[AVERAGE].mean == 88.0
    assert not any(found.label == "gce" for found in made.lines)


def test_averages_beside_a_part_of_the_columns(two_seeds) -> None:
    printed = [Row("ancon", {"A-D": 70.0, "A-W": 10.0, "D-A": 60.0}, 46.67, "paper")]
    made = table(ACCURACY, two_seeds, [], Comparison(printed, [Row("shot", {}, 88.0, "elsewhere")]))
    assert line(made, "published", "ancon").cells[AVERAGE].mean == 65.0
    assert not any(found.label == "shot" for found in made.lines)
    assert any("over the columns shown" in note for note in made.notes)


def test_a_row_with_a_hole_has_no_average(two_seeds, tmp_path: Path) -> None:
    more = read_runs([write_run(tmp_path / "more", "elr", "A-D")])[0]
    cells = line(table(ACCURACY, [*two_seeds, *more], []), "measured", "elr").cells
    assert set(cells) == {"A-D"}


def test_accuracy_by_class(two_seeds) -> None:
    quantity = Quantity("class_accuracy", "", by_class(["mug", "bike", "desk"]))
    made = table(quantity, [run for run in two_seeds if run.column == "A-D"], [])
    assert list(made.columns) == ["mug", "bike", AVERAGE]
    cells = line(made, "measured", "ancon").cells
    assert (cells["mug"].mean, cells["bike"].mean, cells[AVERAGE].mean) == (67.0, 69.0, 68.0)


def test_rows_of_a_sweep_say_where_they_leave_the_usual_settings(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path, "ancon", seed=seed, smoothing=0.3)
    write_run(tmp_path, "ancon", smoothing=0.9, accuracies=(1.0, 2.0))
    made = table(ACCURACY, read_runs([tmp_path])[0], ["smoothing", "beta"])
    assert [found.label for found in made.lines] == ["source-only", "ancon", "ancon (smoothing 0.9)"]


def test_the_same_run_twice_is_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_run(tmp_path / folder, "ancon")
    with pytest.raises(UserError, match="hold the same run"):
        table(ACCURACY, read_runs([tmp_path])[0], [])


def test_selection_by_each_criterion(tmp_path: Path) -> None:
    write_run(tmp_path, "ancon", accuracies=(10.0, 30.0, 20.0))
    made = selection_table(read_runs([tmp_path])[0])
    means = {name: cell.mean for name, cell in made.lines[0].cells.items()}
    assert means == {"infomax": 20.0, "corr_c": 30.0, "mean_entropy": 20.0, "largest change": 10.0}
    assert list(made.columns) == ["infomax", "corr_c", "mean_entropy", "largest change"]
    assert selection_table(read_runs([write_run(tmp_path / "short", "ancon", accuracies=(10.0, 20.0))])[0]) is None


def test_an_epoch_that_is_not_on_record_is_selected_all_the_same(tmp_path: Path) -> None:
    run = write_run(tmp_path, "ancon", accuracies=(10.0, 30.0, 20.0))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    del lines[1]["accuracy"], lines[1]["ece"]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (read,) = read_runs([tmp_path])[0]
    assert accuracies_by_criterion(read) == {"infomax": 20.0, "mean_entropy": 20.0}
    made = selection_table([read])
    assert list(made.columns) == ["infomax", "mean_entropy"]
    assert list(made.notes) == ["mean over the pairs and seeds that every method has"]
    del lines[2]["accuracy"], lines[2]["ece"]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert selection_table(read_runs([tmp_path])[0]) is None


def test_mce_needs_all_corruptions(tmp_path: Path) -> None:
    write_run(tmp_path, "ancon", "frost/1")
    assert mce_table(read_runs([tmp_path])[0]) is None


def test_the_largest_change_is_over_the_papers_criteria_alone(tmp_path: Path) -> None:
    """A criterion that the paper does not take selects the worst epoch, and the change stays 0."""
    run = write_run(tmp_path, "ancon", accuracies=(10.0, 30.0, 20.0))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for epoch, line in enumerate(lines):
        line |= {"corr_c": -epoch, "marginal_entropy": epoch}
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = selection_table(read_runs([tmp_path])[0])
    assert list(made.columns) == ["infomax", "corr_c", "mean_entropy", "largest change", "marginal_entropy"]
    means = {name: cell.mean for name, cell in made.lines[0].cells.items()}
    assert (means["marginal_entropy"], means["infomax"], means["largest change"]) == (30.0, 20.0, 0.0)


def test_ece_is_in_one_unit_and_the_papers_percents_are_brought_to_it(two_seeds) -> None:
    printed = [Row("ancon", {"A-D": 7.0, "D-A": 5.0}, 6.0, "paper")]
    made = table(ECE, two_seeds, [], Comparison(printed))
    assert made.decimals == 4
    assert line(made, "published", "ancon").cells["A-D"].mean == pytest.approx(0.07)
    assert line(made, "published", "ancon").cells[AVERAGE].mean == pytest.approx(0.06)
    assert line(made, "difference", "ancon").cells["A-D"].mean == pytest.approx(0.067 - 0.07)


def test_runs_without_labels_have_tables_of_what_needs_none(tmp_path: Path) -> None:
    write_run(tmp_path, "self-training", labelled=False)
    write_run(tmp_path, "ancon", labelled=False, votes=True)
    runs = read_runs([tmp_path])[0]
    assert table(ACCURACY, runs, []).lines == []
    made = {quantity.name: table(quantity, runs, []) for quantity in WITHOUT_LABELS}
    assert line(made["infomax"], "measured", "source-only").cells["A-D"].mean == 0
    assert line(made["infomax"], "measured", "ancon").cells["A-D"].mean == 2
    assert [found.label for found in made["votes"].lines] == ["ancon"]
    assert line(made["votes"], "measured", "ancon").cells["A-D"].mean == pytest.approx(40)
    assert line(made["threshold"], "measured", "ancon").cells["A-D"].mean == pytest.approx(0.8)
    assert not any(cell.best for kind in made.values() for found in kind.lines for cell in found.cells.values())
    assert selection_table(runs) is None
