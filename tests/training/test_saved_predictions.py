from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.report.fabricated import write_predictions as fabricate
from tllib_ancon.errors import UserError
from tllib_ancon.training import saved_predictions
from tllib_ancon.training.passes import Predictions
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
    paths = np.array(["a.png", "ü/\udcff.png", "c", "d", "e"])
    written = SavedPredictions(np.arange(5), logits, None, features, np.full((5, 3), 65535, np.uint16), paths)
    write_predictions(tmp_path, written)
    saved = read_predictions(tmp_path)
    assert saved.labels is None
    for name in ("indices", "logits", "features", "votes", "paths"):
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


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"logits": np.zeros(3)}, "array 'logits' has shape"),
        ({"logits": np.array([["a", "b"]] * 3)}, "array 'logits' has shape"),
        ({"logits": np.full((3, 2), np.nan)}, "not finite"),
        ({"logits": np.zeros((3, 1))}, "fewer than two classes"),
        ({"labels": np.array([0, 1, 2])}, "outside 0 to 1"),
        ({"labels": np.array([-1, 0, 1])}, "outside 0 to 1"),
        ({"labels": np.zeros(3)}, "array 'labels' has shape"),
        ({"features": np.zeros(3)}, "array 'features' has shape"),
        ({"votes": np.zeros((3, 5))}, r"array 'votes' has shape \(3, 5\)"),
        ({"paths": np.arange(3)}, "array 'paths' has shape"),
    ],
)
def test_arrays_that_are_no_predictions_are_named(tmp_path: Path, changed: dict, message: str) -> None:
    np.savez(tmp_path / "predictions.npz", **{"indices": np.arange(3), "logits": np.zeros((3, 2)), **changed})
    with pytest.raises(UserError, match=f"{tmp_path / 'predictions.npz'}.*{message}"):
        read_predictions(tmp_path)


def test_no_image_at_all_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "predictions.npz", indices=np.zeros(0, int), logits=np.zeros((0, 2)))
    with pytest.raises(UserError, match="or none"):
        read_predictions(tmp_path)


def test_a_small_file_that_unpacks_to_much_is_refused_before(tmp_path: Path, monkeypatch) -> None:
    zeros = np.zeros((saved_predictions.FEW_BYTES // 8 + 8, 2), np.float32)
    np.savez_compressed(tmp_path / "predictions.npz", indices=np.zeros(len(zeros), np.uint8), logits=zeros)
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("it was unpacked"))
    with pytest.raises(UserError, match="MB that unpack to"):
        read_predictions(tmp_path)


def test_features_too_large_for_half_precision_stay_finite(tmp_path: Path) -> None:
    for largest, kind in ((65504.0, np.float16), (1e6, np.float32)):
        features = torch.tensor([[0.5, -largest]])
        keep = saved_predictions.keeper(tmp_path, [4], ["a.png"], [1])
        keep(Predictions(torch.tensor([0]), features, torch.zeros(1, 2)), None)
        saved = read_predictions(tmp_path)
        assert saved.features.dtype == kind
        assert saved.features.tolist() == features.tolist()
        assert (saved.indices.tolist(), saved.labels.tolist(), saved.paths.tolist()) == ([4], [1], ["a.png"])
