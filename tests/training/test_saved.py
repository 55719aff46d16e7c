import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.test_state import Bomb
from tllib_ancon.data.domain import Domain
from tllib_ancon.errors import UserError
from tllib_ancon.training.checkpointing import SavedPredictions, read_predictions, write_arrays, write_predictions
from tllib_ancon.training.inference import Predictions

LOGITS = np.arange(12, dtype=np.float32).reshape(4, 3)
FULL = SavedPredictions(
    indices=np.arange(4),
    logits=LOGITS,
    labels=np.array([0, 1, 2, 0]),
    features=np.ones((4, 2), np.float16),
    votes=np.full((4, 3), 65535, np.uint16),
    paths=np.array(["a.png", "ü/\udcff.png", "c", "d"]),
)


def test_what_is_written_is_read_to_the_last_bit(tmp_path: Path) -> None:
    assert read_predictions(tmp_path) is None
    write_arrays(tmp_path / "predictions.npz", vars(FULL))
    kept = read_predictions(tmp_path)
    for name, array in vars(FULL).items():
        assert getattr(kept, name).dtype == array.dtype
        np.testing.assert_array_equal(getattr(kept, name), array)


@pytest.mark.parametrize(("largest", "kind"), [(65504.0, np.float16), (1e6, np.float32)])
def test_images_are_kept_by_their_position_and_features_stay_finite(tmp_path: Path, largest: float, kind: type) -> None:
    target = Domain.of_files("d", ["a.png", "", "b.png", "", "", "c.png"], ["x", "y"], [1, 0, 0, 0, 0, 1])
    target = target.subset([2, 5])
    features = torch.tensor([[0.5], [-largest]])
    predictions = Predictions(torch.arange(2), features, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    write_predictions(tmp_path / "predictions.npz", predictions, target, torch.eye(2))
    kept = read_predictions(tmp_path)
    assert (kept.indices.tolist(), kept.labels.tolist()) == ([2, 5], [0, 1])
    assert kept.logits.tolist() == [[1, 2], [3, 4]]
    assert (kept.paths.tolist(), kept.votes.tolist()) == (["b.png", "c.png"], [[1, 0], [0, 1]])
    assert (kept.features.dtype, kept.features.tolist()) == (kind, features.tolist())


@pytest.mark.parametrize(
    "changed",
    [
        {"logits": np.array([["a", "b"]] * 4)},
        {"logits": np.full((4, 3), np.nan)},
        {"logits": np.zeros((0, 3)), "indices": np.zeros(0, int)},
        {"indices": np.arange(5)},
        {"labels": np.array([0, 1, 2, 3])},
        {"labels": np.array([-1, 0, 1, 2])},
        {"votes": np.zeros((4, 5))},
    ],
)
def test_arrays_that_are_no_predictions_are_one_message(tmp_path: Path, changed: dict) -> None:
    np.savez(tmp_path / "predictions.npz", **{"indices": np.arange(4), "logits": LOGITS, **changed})
    with pytest.raises(UserError, match=r"predictions.npz cannot be read as predictions"):
        read_predictions(tmp_path)


def test_damage_and_objects_are_refused_and_nothing_is_run(tmp_path: Path) -> None:
    path, bomb = tmp_path / "predictions.npz", Bomb(tmp_path / "victim")
    np.savez(path, logits=LOGITS)
    with pytest.raises(UserError, match=r"cannot be read as predictions .*'indices'"):
        read_predictions(tmp_path)
    np.savez(path, indices=np.array([bomb], dtype=object), logits=np.array([bomb], dtype=object))
    for content in (path.read_bytes(), pickle.dumps(bomb), b"PK"):
        path.write_bytes(content)
        with pytest.raises(UserError, match="cannot be read as arrays"):
            read_predictions(tmp_path)
    assert not bomb.victim.exists()
