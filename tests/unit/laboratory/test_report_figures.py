"""A report draws each figure that its runs allow."""

from tests.support.fabricated import frame_of, write_predictions, write_run
from tllib_ancon.laboratory.figures import figures


def test_predictions_that_cannot_be_read_are_noted_and_the_next_run_takes_their_place(tmp_path):
    damaged = write_run(tmp_path, "ancon", seed=0)
    (damaged / "predictions.npz").write_bytes(b"PK")
    write_predictions(write_run(tmp_path, "ancon", seed=1))
    drawn, (note,) = figures(frame_of(tmp_path))
    assert drawn[-1].name == "calibration"
    assert str(damaged / "predictions.npz") in note
