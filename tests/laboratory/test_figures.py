"""A report draws each figure that its runs allow, with its result as a title, and large enough to read."""

import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from tests.laboratory.fabricated import change_metrics, frame_of, without_scores, write_predictions, write_run
from tllib_ancon.laboratory.curves import WITHOUT_LABELS, draw_curves
from tllib_ancon.laboratory.figures import _boxes, _draw_confusion, figures

OF_PREDICTIONS = {"votes", "reliability", "confusion"}


def names(folder, *varied):
    """Of the figures that are drawn of these runs; none of them is blank."""
    drawn = figures(frame_of(folder, *varied), varied)[0]
    for picture in drawn:
        grey = Image.open(io.BytesIO(picture.png)).convert("L")
        assert np.asarray(grey).std() > 1
    return [picture.name for picture in drawn]


def test_several_runs_give_boxes_of_the_selection_where_each_chosen_epoch_is_on_record(tmp_path):
    """The runs that are left would be those whose criteria choose one epoch."""
    write_run(tmp_path, "ancon", accuracies=(1.0, 3.0, 2.0))
    assert names(tmp_path) == ["epochs"]
    run = write_run(tmp_path, "ancon", seed=1, accuracies=(1.0, 4.0, 2.0))
    assert names(tmp_path) == ["epochs", "selection"]
    change_metrics(run, without_scores(1))
    assert names(tmp_path) == ["epochs"]


def test_a_sweep_has_a_figure_for_each_axis_that_was_run(tmp_path):
    for seed in (0, 1):
        for smoothing, beta in ((0.3, 0.9), (0.1, 0.9), (0.3, 0.1)):
            write_run(tmp_path, "ancon", seed=seed, smoothing=smoothing, beta=beta)
    assert names(tmp_path, "smoothing", "beta", "schedule") == ["sweep-smoothing", "sweep-beta"]


def test_a_box_holds_runs_that_leave_no_other_usual_setting(tmp_path, monkeypatch):
    accuracies = {(0.3, "relative"): 60.0, (0.1, "relative"): 50.0, (0.3, "entropy"): 40.0}
    for (smoothing, weighting), accuracy in accuracies.items():
        write_run(tmp_path, "ancon", accuracies=(1, accuracy), smoothing=smoothing, weighting=weighting)
    drawn = {}

    def remember(name, title, values, axis):
        drawn[name] = list(values)

    monkeypatch.setattr("tllib_ancon.laboratory.figures._boxes", remember)
    figures(frame_of(tmp_path, "smoothing", "weighting"), ["smoothing", "weighting"])
    assert drawn == {
        "sweep-smoothing": [("λ = 0.1", 50.0), ("λ = 0.3", 60.0)],
        "variants": [("ancon", 60.0), ("weighting entropy", 40.0)],
    }


def test_the_title_of_a_figure_is_its_result(tmp_path, monkeypatch):
    titles = []
    monkeypatch.setattr(Figure, "suptitle", lambda figure, text, **style: titles.append(text))
    for method, accuracy in (("self-training", 50.0), ("ancon", 60.0)):
        for seed in (0, 1):
            write_run(tmp_path, method, seed=seed, accuracies=(40.0, accuracy - 1, accuracy + seed))
    write_predictions(tmp_path / "erm" / "A-D" / "ancon-seed0")
    figures(frame_of(tmp_path), ())
    assert titles == [
        "ancon ends with the highest accuracy: 40.0 to 60.5 %",
        "self-training has the highest mean change of accuracy: 1.5 points",
        "ancon, A-D, seed 0: right on 100 % of images with 1 vote, 100 % with 4 votes",
        "ancon, A-D, seed 0, ECE: 0.209",
        "ancon, A-D, seed 0: accuracy 88.3 %",
    ]
    titles.clear()
    for smoothing in (0.1, 0.5):
        for seed in (0, 1):
            write_run(tmp_path / "sweep", "ancon", seed=seed, accuracies=(1, 90 + smoothing), smoothing=smoothing)
    figures(frame_of(tmp_path / "sweep", "smoothing"), ("smoothing",))
    assert titles == ["λ = 0.5 has the highest mean accuracy: 90.5 %"]


def test_long_names_leave_the_boxes_their_place():
    values = [(f"a name as long as those of settings are, {number % 14}", 1.0 + number) for number in range(28)]
    picture = _boxes("name", "title", values, "accuracy (%)")
    assert picture is not None
    pixels = np.asarray(Image.open(io.BytesIO(picture.png)).convert("L"))
    frame = np.flatnonzero((pixels < 128).mean(1) > 0.4)
    assert frame[-1] - frame[0] > 0.7 * len(pixels)


@pytest.mark.parametrize(
    ("changed", "drawn"),
    [
        ({}, OF_PREDICTIONS),
        ({"votes": None}, {"reliability", "confusion"}),
        ({"labels": None}, set()),
    ],
)
def test_a_figure_that_lacks_its_arrays_is_left_out(tmp_path, changed, drawn):
    write_predictions(write_run(tmp_path, "ancon"), **changed)
    assert set(names(tmp_path)) & OF_PREDICTIONS == drawn


def test_classes_have_their_names_also_where_these_are_mathematics(tmp_path, monkeypatch):
    write_predictions(write_run(tmp_path, "ancon", inputs={"classes": ["mug", "$bike$", "a" * 40]}))
    panels = []

    def draw(panel, *arguments):
        panels.append(panel)
        return _draw_confusion(panel, *arguments)

    monkeypatch.setattr("tllib_ancon.laboratory.figures._draw_confusion", draw)
    figures(frame_of(tmp_path), ())
    for labels in (panels[0].get_xticklabels(), panels[0].get_yticklabels()):
        assert [label.get_text() for label in labels] == ["mug", r"\$bike\$", "a" * 23 + "…"]


def test_predictions_that_cannot_be_read_are_noted_and_the_next_run_takes_their_place(tmp_path):
    damaged = write_run(tmp_path, "ancon", seed=0)
    (damaged / "predictions.npz").write_bytes(b"PK")
    write_predictions(write_run(tmp_path, "ancon", seed=1))
    drawn, (note,) = figures(frame_of(tmp_path), ())
    assert {picture.name for picture in drawn} >= OF_PREDICTIONS
    assert str(damaged / "predictions.npz") in note


def test_methods_are_compared_where_all_of_them_were_run(tmp_path, monkeypatch):
    for method, other_pair in (("self-training", "A-W"), ("ancon", "W-D")):
        write_run(tmp_path, method, "A-D", accuracies=(1.0, 2.0))
        write_run(tmp_path, method, other_pair, accuracies=(90.0, 91.0))
    seen = []
    monkeypatch.setattr("tllib_ancon.laboratory.figures.draw_curves", lambda runs, file, measures: seen.extend(runs))
    figures(frame_of(tmp_path), ())
    curves = [(method, [line["accuracy"] for line in metrics]) for method, _, metrics in seen]
    assert curves == [("self-training", [1.0, 2.0]), ("ancon", [1.0, 2.0])]
    monkeypatch.undo()
    write_run(tmp_path / "apart", "self-training", "A-D")
    write_run(tmp_path / "apart", "ancon", "A-W")
    assert names(tmp_path / "apart") == []


def test_a_figure_of_curves_can_be_read_600_pixels_wide(monkeypatch):
    metrics = [{"epoch": epoch, "infomax": 1.0, "votes": 0.5, "threshold": 0.7} for epoch in range(3)]
    file = io.BytesIO()
    titles = []
    monkeypatch.setattr(Figure, "suptitle", lambda figure, text, **style: titles.append(text))
    draw_curves([("ancon", 0, metrics)], file, WITHOUT_LABELS)
    assert Image.open(file).width <= 1100  # letters of 10 points keep 11 of their 20 pixels
    assert titles == ["ancon: InfoMax from 1 to 1"]
    draw_curves([("ancon", 0, [])], file, WITHOUT_LABELS)
    assert titles[-1] == "no numbers by epoch"
