"""CIFAR-10-C: corruptions follow severity and seed alone, and what adapts its public network runs."""

import re
import runpy

import numpy as np
import pytest
import torch

from benchmarks.cifar10_c.networks import ResNet
from tests.support.places import ROOT


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).integers(0, 256, (24, 32, 32, 3), dtype=np.uint8)


@pytest.fixture
def stored(tmp_path, images):
    """A folder with pictures and a network of random weights under the names of the public ones."""
    np.savez(tmp_path / "test.npz", x=images, y=np.zeros(len(images), np.int64))
    torch.manual_seed(0)
    weights = {f"module.{name}": value for name, value in ResNet(1, 10).state_dict().items()}
    torch.save({"state_dict": weights}, tmp_path / "resnet20-12fca82f.th")
    return tmp_path


def test_the_example_of_somebody_elses_network(stored, monkeypatch, capsys):
    monkeypatch.chdir(stored)
    monkeypatch.setenv("CIFAR10", str(stored))
    runpy.run_path(str(ROOT / "examples" / "somebody_elses_network.py"))
    assert re.match(r"[\d.]+ % before, [\d.]+ % after\n", capsys.readouterr().out)
    assert (stored / "somebody_elses_network.png").is_file()
