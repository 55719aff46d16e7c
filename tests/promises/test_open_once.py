"""Model and images are opened once: the network is called once, its copy once, and nothing is printed; what was decided
are notes."""

import numpy as np
import pytest
import timm
import torch
from timm.models import ResNet
from torch import nn

import tllib_ancon
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.opening.open import open_images, open_model

SETTINGS = {"norm_mean": (0.5,) * 3, "norm_std": (0.25,) * 3, "workers": 0}


class Counted(nn.Module):
    calls = 0

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(4, 3)

    def forward(self, images):
        Counted.calls += 1
        return self.head(self.body(images))


@pytest.fixture
def model():
    torch.manual_seed(0)
    Counted.calls = 0
    return Counted()


def images(count=12):
    return np.random.default_rng(0).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)


def test_opening_calls_the_network_once_and_its_copy_once_and_prints_nothing(model, capsys):
    config = AdaptConfig(**SETTINGS)
    opened = open_images(images(), open_model(model, config), config)
    assert Counted.calls == 2
    assert capsys.readouterr() == ("", "")
    assert [note.code for note in opened.notes] == ["few-images"]
    assert opened.settings.image_size == 16


def test_check_makes_one_pass_after_that(model):
    tllib_ancon.check(model, images(), **SETTINGS)
    predictions = 1
    mirrors = 3  # images, mirrors and shifts, by the statistics of their batches
    assert Counted.calls == 2 + predictions + mirrors


def test_notes_of_a_quiet_run_are_in_its_result(model, capsys):
    result = tllib_ancon.adapt(model, images(), epochs=1, quiet=True, **SETTINGS)
    assert capsys.readouterr().err == ""
    loud = tllib_ancon.adapt(model, images(), epochs=1, **SETTINGS)
    assert loud.notes == result.notes
    shown = capsys.readouterr().err
    assert all(str(note) in shown for note in result.notes)


def test_a_network_of_a_checkpoint_or_a_run_is_called_once(tmp_path, monkeypatch):
    calls = []
    forward = ResNet.forward

    def counted(network, inputs):
        calls.append(len(inputs))
        return forward(network, inputs)

    network = timm.create_model("test_resnet", num_classes=3)
    torch.save(network.state_dict(), tmp_path / "model.pth")
    settings = {**SETTINGS, "method": "adabn", "epochs": 1, "quiet": True}
    tllib_ancon.adapt(network, images(), log=str(tmp_path / "run"), **settings)
    monkeypatch.setattr(ResNet, "forward", counted)
    for checkpoint, arch in (("model.pth", {"arch": "timm/test_resnet"}), ("run", {})):
        config = AdaptConfig(checkpoint=str(tmp_path / checkpoint), **SETTINGS, **arch)
        open_images(images(), open_model(None, config), config)
        assert calls == [8]
        calls.clear()
