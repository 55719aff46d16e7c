"""Labels of the target never reach an adaptation: with other labels, or without, the same model comes back."""

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
    assert torch.equal(weights(labelled, "ancon-auto"), weights(other, "ancon-auto"))
