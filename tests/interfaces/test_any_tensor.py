"""Features are adapted to as images are."""

from functools import cache

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import tllib_ancon
from tests.support.json_files import read_json
from tests.support.networks import QUICK, fit
from tllib_ancon.cli.main import main

LONGER = {**QUICK, "epochs": 3, "batch_size": 64}
DIGITS = load_digits()
FEATURES = (DIGITS.data / 16).astype(np.float32)
LABELS = DIGITS.target
NOISE = np.random.default_rng(0).normal(0, 0.25, FEATURES.shape).astype(np.float32)
SHIFTED = 0.35 * FEATURES + 0.4 + 0.5 * NOISE
"""The features after a shift of contrast, with noise."""


def build():
    torch.manual_seed(0)
    hidden = nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()
    return nn.Sequential(*hidden, nn.Linear(64, 10))


@cache
def trained():
    return fit(build(), [(torch.from_numpy(FEATURES), torch.from_numpy(LABELS))] * 60)


def jitter(batch):
    return batch + 0.05 * torch.randn_like(batch)


@pytest.mark.parametrize("method", ["ancon-auto", "ancon", "tent", "adabn"])
def test_features_are_adapted_to_and_accuracy_rises(method):
    result = tllib_ancon.adapt(trained(), SHIFTED, labels=LABELS, method=method, augment=jitter, **LONGER)
    assert result.metrics[-1]["accuracy"] > result.metrics[0]["accuracy"] + 5


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with ``model.pth`` and the module that builds networks."""
    torch.save(trained().state_dict(), tmp_path / "model.pth")
    (tmp_path / "networks_of_test.py").write_text("from tests.interfaces.test_any_tensor import build\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_file_of_arrays_on_the_command_line(folder):
    for name, rows in (("source", FEATURES), ("target", SHIFTED)):
        (folder / name).mkdir()
        np.save(folder / name / "x.npy", rows)
        np.save(folder / name / "y.npy", LABELS)
    common = ["target/x.npy", "--model", "networks_of_test:build", "-j", "0", "--quiet"]
    assert main(["adapt", *common, "--checkpoint", "model.pth", "--epochs", "1", "--log", "run"]) == 0
    assert main(["predict", *common, "--checkpoint", "run", "--out", "out.csv"]) == 0
    assert len((folder / "out.csv").read_text().splitlines()) == len(SHIFTED) + 1
    accuracies = []
    for checkpoint in ("model.pth", "run"):
        words = ["evaluate", "source/x.npy", *common[1:], "--checkpoint", checkpoint, "--json", f"{checkpoint}.json"]
        assert main(words) == 0
        accuracies.append(read_json(folder / f"{checkpoint}.json")["accuracy"])
    assert accuracies[0] > 95 > accuracies[1]
