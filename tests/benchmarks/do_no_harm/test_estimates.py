from pathlib import Path

import numpy as np
import pytest

from benchmarks.do_no_harm import estimates


def stored(folder: Path, right: float) -> Path:
    """A run whose start is sure, and right on this share of 620 images of 31 classes; every class is as frequent as it
    is predicted."""
    labels = np.arange(620) % 31
    answers = np.where(np.arange(620) < right * 620, labels, (labels + 1) % 31)
    run = folder / "erm" / f"A-D{right}" / "self-training-seed0"
    run.mkdir(parents=True)
    (run / "logits").mkdir()
    np.savez(run / "logits" / "epoch-000.npz", logits=30 * np.eye(31, dtype=np.float32)[answers], labels=labels)
    return run


def test_sure_and_right_predictions_are_counted_exactly(tmp_path: Path) -> None:
    found = list(estimates.distances(stored(tmp_path, 1.0), draws=3))
    assert {one["start"] for one in found} == {"good start"}
    value = {(one["kind"], one["estimate"]): one["value"] for one in found}
    for kind in estimates.KINDS:
        assert value[kind, "counts"] == pytest.approx(0, abs=1e-6)
        assert value[kind, "counts, as far as the likeliest agrees"] == pytest.approx(0, abs=1e-3)
    assert value["few-classes", "equal classes"] == pytest.approx(21 / 31, abs=1e-6)
