from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.report.fabricated import write_predictions, write_run
from tllib_ancon.report import prediction_figures
from tllib_ancon.report.canvas import boxes, new_figure, whole_ticks
from tllib_ancon.report.figures import figures
from tllib_ancon.report.runs import read_runs
from tllib_ancon.report.tables import selection_table

OPTIONAL = {"votes", "reliability", "confusion", "tsne"}


def names(folder: Path, *varied: str) -> list[str]:
    drawn = figures(read_runs([folder])[0], varied)[0]
    for picture in drawn:
        assert np.asarray(Image.open(io.BytesIO(picture.png)).convert("L")).std() > 1
    return [picture.name for picture in drawn]


def test_one_run_gives_curves_alone(tmp_path: Path) -> None:
    write_run(tmp_path, "ancon")
    assert names(tmp_path) == ["epochs"]


def test_several_runs_give_boxes_of_the_selection(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path, "ancon", seed=seed, accuracies=(1.0, 3.0 + seed, 2.0))
    assert names(tmp_path) == ["epochs", "selection"]


def test_no_boxes_of_the_selection_where_a_chosen_epoch_is_not_on_record(tmp_path: Path) -> None:
    """The runs that are left would be those whose criteria choose one epoch."""
    for seed in (0, 1):
        write_run(tmp_path, "ancon", seed=seed)
    run = write_run(tmp_path, "ancon", seed=2, accuracies=(1.0, 3.0, 2.0))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    del lines[1]["accuracy"], lines[1]["ece"]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert names(tmp_path) == ["epochs"]


def test_severities_give_a_figure(tmp_path: Path) -> None:
    for severity in (1, 3):
        write_run(tmp_path, "ancon", f"frost/{severity}")
    assert "severity" in names(tmp_path)


def test_a_sweep_has_a_figure_for_each_axis_that_was_run(tmp_path: Path) -> None:
    for seed in (0, 1):
        for smoothing, beta in ((0.3, 0.9), (0.1, 0.9), (0.3, 0.1)):
            write_run(tmp_path, "ancon", seed=seed, smoothing=smoothing, beta=beta)
    assert names(tmp_path, "smoothing", "beta", "schedule") == ["sweep-smoothing", "sweep-beta"]


def test_design_choices_have_boxes(tmp_path: Path) -> None:
    for seed in (0, 1):
        for weighting in ("relative", "entropy"):
            write_run(tmp_path, "ancon", seed=seed, weighting=weighting)
    assert names(tmp_path, "weighting", "temperature") == ["variants"]


def test_long_names_leave_the_boxes_their_place() -> None:
    values = {f"a name as long as those of settings are, {number}": [1.0, 2.0 + number] for number in range(14)}
    pixels = np.asarray(Image.open(io.BytesIO(boxes("name", "title", values, "accuracy").png)).convert("L"))
    frame = np.flatnonzero((pixels < 128).mean(1) > 0.4)
    assert frame[-1] - frame[0] > 0.7 * len(pixels)


def test_a_box_holds_runs_that_leave_no_other_usual_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accuracies = {(0.3, "relative"): 60.0, (0.1, "relative"): 50.0, (0.3, "entropy"): 40.0}
    for seed in (0, 1):
        for (smoothing, weighting), accuracy in accuracies.items():
            write_run(tmp_path, "ancon", seed=seed, accuracies=(1, accuracy), smoothing=smoothing, weighting=weighting)
    drawn: dict[str, dict[str, list[float]]] = {}
    monkeypatch.setattr(
        "tllib_ancon.report.figures.boxes", lambda name, title, values, axis: drawn.update({name: values})
    )
    figures(read_runs([tmp_path])[0], ["smoothing", "weighting"])
    assert drawn == {
        "sweep-smoothing": {"0.1": [50.0, 50.0], "0.3": [60.0, 60.0]},
        "variants": {"ancon": [60.0, 60.0], "weighting entropy": [40.0, 40.0]},
    }


def test_saved_predictions_give_four_figures(tmp_path: Path) -> None:
    for method in ("self-training", "ancon"):
        write_predictions(write_run(tmp_path, method))
    assert set(names(tmp_path)) & OPTIONAL == OPTIONAL


def test_a_figure_that_lacks_its_arrays_is_left_out(tmp_path: Path) -> None:
    run = write_run(tmp_path, "ancon")
    write_predictions(run)
    with np.load(run / "predictions.npz") as saved:
        arrays = {name: saved[name] for name in ("indices", "logits", "labels")}
    np.savez(run / "predictions.npz", **arrays)
    assert set(names(tmp_path)) & OPTIONAL == {"reliability", "confusion"}
    del arrays["labels"]
    np.savez(run / "predictions.npz", **arrays)
    assert not set(names(tmp_path)) & OPTIONAL


def test_runs_without_labels_have_curves_and_features(tmp_path: Path) -> None:
    run = write_run(tmp_path, "ancon", labelled=False, votes=True)
    write_predictions(run)
    with np.load(run / "predictions.npz") as saved:
        arrays = {name: saved[name] for name in saved.files if name != "labels"}
    np.savez(run / "predictions.npz", **arrays)
    assert names(tmp_path) == ["epochs-without-labels", "tsne"]


def test_predictions_that_cannot_be_read_are_noted_and_the_next_run_takes_their_place(tmp_path: Path) -> None:
    damaged, good = (write_run(tmp_path, "ancon", seed=seed) for seed in (0, 1))
    (damaged / "predictions.npz").write_bytes(b"PK")
    write_predictions(good)
    drawn, notes = figures(read_runs([tmp_path])[0], ())
    assert {picture.name for picture in drawn} >= OPTIONAL
    assert len(notes) == 1
    assert str(damaged / "predictions.npz") in notes[0]


@pytest.mark.parametrize("value", [np.inf, np.nan, 1e30])
def test_features_of_a_diverged_run_are_left_out_of_the_one_figure_that_needs_them(tmp_path: Path, value) -> None:
    features = np.zeros((60, 4), np.float32)
    features[3, 1] = value
    write_predictions(write_run(tmp_path, "ancon"), features=features)
    drawn, notes = figures(read_runs([tmp_path])[0], ())
    assert {picture.name for picture in drawn} & OPTIONAL == OPTIONAL - {"tsne"}
    assert notes == ["left out of t-SNE, its features have diverged: ancon, A-D, seed 0"]


@pytest.mark.parametrize("shape", [(2, 5), (60, 1)])
def test_too_little_for_two_dimensions(tmp_path: Path, shape: tuple[int, int]) -> None:
    write_predictions(write_run(tmp_path, "ancon"), images=shape[0], features=np.zeros(shape, np.float16))
    assert "tsne" not in names(tmp_path)


def test_classes_have_their_names_and_votes_whole_ticks(tmp_path: Path) -> None:
    write_predictions(write_run(tmp_path, "ancon", inputs={"classes": ["mug", "$bike$", "a" * 40]}))
    (run,) = read_runs([tmp_path])[0]
    one = prediction_figures.Shown("", prediction_figures._classes(run, run.predictions), run.predictions)
    figure, (panel,) = new_figure(1)
    prediction_figures._draw_confusion(panel, one)
    shown = ["mug", r"\$bike\$", "a" * 23 + "…"]
    assert [tick.get_text() for tick in panel.get_xticklabels()] == shown
    assert [tick.get_text() for tick in panel.get_yticklabels()] == shown
    prediction_figures._class_legend(figure, [one])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == shown
    figure, (panel,) = new_figure(1)
    panel.plot([1, 3], [0, 1])
    whole_ticks(panel.xaxis)
    assert all(float(tick).is_integer() for tick in panel.get_xticks())


def test_methods_are_compared_where_all_of_them_were_run(tmp_path: Path, monkeypatch) -> None:
    for method, pairs in (("self-training", ("A-D", "A-W")), ("ancon", ("A-D", "W-D"))):
        for pair in pairs:
            write_run(tmp_path, method, pair, accuracies=(1.0, 2.0, 3.0) if pair == "A-D" else (90.0, 91.0, 92.0))
    seen = {}
    monkeypatch.setattr("tllib_ancon.report.figures.draw_curves", lambda metrics, file, measures: seen.update(metrics))
    list(figures(read_runs([tmp_path])[0], ())[0])
    assert {method: [line["accuracy"] for line in seeds[0]] for method, seeds in seen.items()} == {
        "self-training": [1.0, 2.0, 3.0],
        "ancon": [1.0, 2.0, 3.0],
    }
    table = selection_table(read_runs([tmp_path])[0])
    assert [line.cells["infomax"].mean for line in table.lines] == [3.0, 3.0]


def test_methods_that_share_no_pair_have_no_curves(tmp_path: Path) -> None:
    write_run(tmp_path, "self-training", "A-D")
    write_run(tmp_path, "ancon", "A-W")
    assert names(tmp_path) == []
    assert selection_table(read_runs([tmp_path])[0]) is None


def test_nine_methods_fill_a_square_of_panels(tmp_path: Path) -> None:
    methods = ("self-training", "elr", "ancon", "gce", "gce+elr", "gce+ancon", "nrc", "nrc+elr", "nrc+ancon", "shot")
    for method in methods:
        write_predictions(write_run(tmp_path, method))
    drawn = {picture.name: Image.open(io.BytesIO(picture.png)) for picture in figures(read_runs([tmp_path])[0], ())[0]}
    width, height = drawn["reliability"].size
    assert abs(width - height) < 0.05 * width
