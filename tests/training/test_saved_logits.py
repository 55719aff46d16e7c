from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tllib_ancon.errors import UserError
from tllib_ancon.training.passes import Predictions
from tllib_ancon.training.saved_logits import SavedLogits, keeper, read_logits, remove_logits, write_logits

LOGITS = np.arange(12, dtype=np.float32).reshape(4, 3)


def test_candidates_are_read_as_they_were_written_epochs_first(tmp_path: Path) -> None:
    assert read_logits(tmp_path) == {}
    full = SavedLogits(
        np.arange(4), LOGITS, np.array([0, 1, 2, 0]), np.ones((2, 4, 3)), LOGITS[:2], np.array([0, 1]), np.array([2, 3])
    )
    write_logits(tmp_path, "adabn", full)
    for epoch in (11, 2):
        write_logits(tmp_path, f"epoch-{epoch:03d}", SavedLogits(np.arange(4), epoch * LOGITS))
    found = read_logits(tmp_path)
    assert list(found) == ["epoch-002", "epoch-011", "adabn"]
    for name, array in vars(full).items():
        np.testing.assert_array_equal(getattr(found["adabn"], name), array)
    assert found["epoch-002"].labels is None
    remove_logits(tmp_path)
    assert read_logits(tmp_path) == {}


def test_a_run_keeps_its_epochs_in_the_order_of_the_domain(tmp_path: Path) -> None:
    keep = keeper(tmp_path, [0, 2, 5], [1, 0, 1])
    keep(7, Predictions(torch.tensor([2, 0]), torch.zeros(2, 1), torch.tensor([[1.0, 2.0], [3.0, 4.0]])))
    saved = read_logits(tmp_path)["epoch-007"]
    assert (saved.indices.tolist(), saved.labels.tolist()) == ([5, 0], [1, 1])
    assert saved.logits.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"logits": np.zeros(4)}, "array 'logits' has shape"),
        ({"logits": np.full((4, 3), np.inf)}, "not finite"),
        ({"logits": np.zeros((4, 1))}, "too few rows or columns"),
        ({"logits": np.zeros((0, 3))}, "too few rows or columns"),
        ({"indices": np.arange(5)}, "'indices' does not belong"),
        ({"labels": np.array([0, 1, 2, 3])}, "'labels' has values outside 0 to 2"),
        ({"labels": np.array([0, 1])}, "'labels' does not belong"),
        ({"dropout": np.zeros((2, 4, 2))}, "'dropout' does not belong"),
        ({"mixed": np.zeros((2, 3))}, "'first' does not belong"),
        ({"mixed": np.zeros((1, 3)), "first": np.array([4]), "second": np.array([0])}, "'first' has values outside 0"),
        ({"labels": np.array(["a", "b", "c", "d"])}, "array 'labels' has shape"),
    ],
)
def test_what_is_no_logits_is_named(tmp_path: Path, changed: dict, message: str) -> None:
    (tmp_path / "logits").mkdir()
    np.savez(tmp_path / "logits/adabn.npz", **{"indices": np.arange(4), "logits": LOGITS, **changed})
    with pytest.raises(UserError, match=f"adabn.npz.*{message}"):
        read_logits(tmp_path)


def test_a_missing_array_and_damaged_bytes_are_named(tmp_path: Path) -> None:
    (tmp_path / "logits").mkdir()
    np.savez(tmp_path / "logits/adabn.npz", logits=LOGITS)
    with pytest.raises(UserError, match=r"adabn.npz has no array 'indices'"):
        read_logits(tmp_path)
    (tmp_path / "logits/adabn.npz").write_bytes(b"PK")
    with pytest.raises(UserError, match=r"adabn.npz cannot be read as arrays"):
        read_logits(tmp_path)


def test_candidates_of_other_images_are_refused(tmp_path: Path) -> None:
    write_logits(tmp_path, "epoch-000", SavedLogits(np.arange(4), LOGITS))
    write_logits(tmp_path, "adabn", SavedLogits(np.arange(4) + 1, LOGITS))
    with pytest.raises(UserError, match=r"adabn.npz is of other images or classes than epoch-000.npz"):
        read_logits(tmp_path)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b"])
def test_a_name_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="no name of a candidate"):
        write_logits(tmp_path, name, SavedLogits(np.arange(4), LOGITS))
