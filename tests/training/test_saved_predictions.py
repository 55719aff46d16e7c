from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.report.fabricated import write_predictions as fabricate
from tllib_ancon.errors import UserError
from tllib_ancon.training.saved_predictions import SavedPredictions, read_predictions, write_predictions


def test_what_was_saved_is_read(tmp_path: Path) -> None:
    assert read_predictions(tmp_path) is None
    fabricate(tmp_path, images=7, classes=4)
    saved = read_predictions(tmp_path)
    assert (saved.logits.shape, saved.labels.shape, saved.features.shape, saved.votes.shape) == (
        (7, 4),
        (7,),
        (7, 4),
        (7, 4),
    )


def test_what_is_written_is_read_to_the_last_bit(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    logits, features = (
        generator.normal(size=(5, 3)).astype(np.float32),
        generator.normal(size=(5, 2)).astype(np.float16),
    )
    written = SavedPredictions(np.arange(5), logits, None, features, np.full((5, 3), 65535, np.uint16))
    write_predictions(tmp_path, written)
    saved = read_predictions(tmp_path)
    assert saved.labels is None
    for name in ("indices", "logits", "features", "votes"):
        assert getattr(saved, name).dtype == getattr(written, name).dtype
        np.testing.assert_array_equal(getattr(saved, name), getattr(written, name))


def test_labels_features_and_votes_may_be_absent(tmp_path: Path) -> None:
    np.savez(tmp_path / "predictions.npz", indices=np.arange(3), logits=np.zeros((3, 2)))
    saved = read_predictions(tmp_path)
    assert (saved.labels, saved.features, saved.votes) == (None, None, None)


def test_objects_are_refused_and_nothing_is_run(tmp_path: Path) -> None:
    class Malicious:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "run",))

    array = np.array([Malicious()], dtype=object)
    np.savez(tmp_path / "predictions.npz", indices=array, logits=array)
    with pytest.raises(UserError, match="cannot be read"):
        read_predictions(tmp_path)
    (tmp_path / "predictions.npz").write_bytes(pickle.dumps(Malicious()))
    with pytest.raises(UserError, match="cannot be read"):
        read_predictions(tmp_path)
    assert not (tmp_path / "run").exists()


def test_a_file_that_lacks_arrays_or_mixes_lengths(tmp_path: Path) -> None:
    np.savez(tmp_path / "predictions.npz", indices=np.arange(3))
    with pytest.raises(UserError, match="no array 'logits'"):
        read_predictions(tmp_path)
    np.savez(tmp_path / "predictions.npz", indices=np.arange(3), logits=np.zeros((4, 2)))
    with pytest.raises(UserError, match="different lengths"):
        read_predictions(tmp_path)
