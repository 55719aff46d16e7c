"""Labels of the target never reach an adaptation: with other labels, or without, the same model comes back."""

import numpy as np
import pytest
import torch

import tllib_ancon
from tests.support.levels import UNSCALED, levels, write

HOW = {**UNSCALED, "epochs": 2, "quiet": True}


def weights(images, method, **labels):
    model = tllib_ancon.adapt(levels(4), images, method=method, seed=0, **labels, **HOW).model
    return torch.cat([tensor.flatten().double() for tensor in model.state_dict().values()])


def test_folders_with_names_of_classes_change_no_weight(tmp_path):
    labelled = write(tmp_path / "photos", ["0", "1", "2", "3"], 4)
    other = write(tmp_path / "again" / "photos", ["2022", "2023", "2024", "2025"], 4)
    assert torch.equal(weights(labelled, "auto"), weights(other, "auto"))


@pytest.mark.parametrize("method", ["auto", "ancon"])
def test_neither_training_nor_selection_sees_a_label(method):
    """``ancon`` selects the epoch by InfoMax."""
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    right = np.arange(40) % 4
    expected = weights(images, method)
    assert torch.equal(weights(images, method, labels=right), expected)
    assert torch.equal(weights(images, method, labels=3 - right), expected)
