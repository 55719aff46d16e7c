"""A report draws each figure that its runs allow."""

import io

import numpy as np
import pytest
from PIL import Image

from tests.support.fabricated import frame_of, write_predictions, write_run
from tllib_ancon.laboratory.figures import figures


def names(folder):
    """Of the figures that are drawn of these runs; none of them is blank."""
    drawn, notes = figures(frame_of(folder))
    assert notes == []
    for picture in drawn:
        grey = Image.open(io.BytesIO(picture.png)).convert("L")
        assert np.asarray(grey).std() > 1
    return [picture.name for picture in drawn]


@pytest.mark.parametrize(
    ("changed", "drawn"), [({}, ["epochs", "pairs", "calibration"]), ({"labels": None}, ["epochs", "pairs"])]
)
def test_each_figure_that_the_runs_allow(tmp_path, changed, drawn):
    for seed in (0, 1):
        write_predictions(write_run(tmp_path, "ancon", seed=seed, inputs={"classes": ["$\\bad$"] * 3}), **changed)
    assert names(tmp_path) == drawn


def test_predictions_that_cannot_be_read_are_noted_and_the_next_run_takes_their_place(tmp_path):
    damaged = write_run(tmp_path, "ancon", seed=0)
    (damaged / "predictions.npz").write_bytes(b"PK")
    write_predictions(write_run(tmp_path, "ancon", seed=1))
    drawn, (note,) = figures(frame_of(tmp_path))
    assert drawn[-1].name == "calibration"
    assert str(damaged / "predictions.npz") in note


def test_methods_are_compared_by_epoch_where_all_of_them_were_run(tmp_path, monkeypatch):
    for method, other_pair in (("self-training", "A-W"), ("ancon", "W-D")):
        write_run(tmp_path, method, "A-D", accuracies=(1.0, 2.0))
        write_run(tmp_path, method, other_pair, accuracies=(90.0, 91.0))
    seen = []
    monkeypatch.setattr("tllib_ancon.laboratory.figures.draw_curves", lambda runs, file: seen.extend(runs))
    figures(frame_of(tmp_path))
    curves = [(method, [line["accuracy"] for line in metrics]) for method, metrics in seen]
    assert curves == [("self-training", [1.0, 2.0]), ("ancon", [1.0, 2.0])]
    monkeypatch.undo()
    write_run(tmp_path / "apart", "self-training", "A-D")
    write_run(tmp_path / "apart", "ancon", "A-W")
    assert names(tmp_path / "apart") == ["pairs"]
