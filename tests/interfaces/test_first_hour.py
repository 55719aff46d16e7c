"""What new users try first works, or one line says what to write."""

import pytest
import timm
import torch
from torch import nn

import tllib_ancon
from tests.support.levels import write
from tllib_ancon.cli.main import main

NAMES = ["empty", "deer", "fox"]
MODEL = ["--checkpoint", "model.pth", "-a", "timm/test_resnet", "--image-size", "32", "--workers", "0"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with photos of three classes and the weights of a model."""
    torch.manual_seed(0)
    torch.save(timm.create_model("test_resnet", num_classes=3).state_dict(), tmp_path / "model.pth")
    write(tmp_path / "photos", NAMES, 3)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_evaluation_shows_each_class(place, capfd):
    assert main(["evaluate", "photos", *MODEL, "--class-names", *NAMES]) == 0
    shown = capfd.readouterr().out.splitlines()
    for name in NAMES:
        assert any(line.split()[:2] == [name, "2"] for line in shown)


def test_a_note_about_augmentation_fits_the_method(capfd):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval()
    images = torch.randn(24, 3, 8, 8)
    tllib_ancon.adapt(model, images, method="tent", epochs=1, workers=0)
    assert "augmentation" not in capfd.readouterr().err
    tllib_ancon.adapt(model, images, method="ancon", epochs=1, workers=0)
    assert "no augmentation is used" in capfd.readouterr().err
