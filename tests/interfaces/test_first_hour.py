"""What new users try first works, or one line says what to write."""

import pytest
import timm
import torch
from torch import nn

import tllib_ancon
from tests.support.levels import write
from tests.support.refusals import one_line
from tllib_ancon.cli.main import main

NAMES = ["empty", "deer", "fox"]
QUICK = ["--epochs", "1", "--threads", "1", "--method", "self-training"]
MODEL = ["--checkpoint", "model.pth", "-a", "timm/test_resnet", "--image-size", "32", "--workers", "0"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with photos of three classes and the weights of a model."""
    torch.manual_seed(0)
    torch.save(timm.create_model("test_resnet", num_classes=3).state_dict(), tmp_path / "model.pth")
    write(tmp_path / "photos", NAMES, 3)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(capfd, *words):
    """The exit status of a command, and what it shows."""
    capfd.readouterr()
    status = main([*words])
    return status, capfd.readouterr()


def test_evaluation_shows_each_class(place, capfd):
    status, output = shown(capfd, "evaluate", "photos", *MODEL, "--class-names", *NAMES)
    assert status == 0
    for name in NAMES:
        assert any(line.split()[:2] == [name, "2"] for line in output.out.splitlines())


def test_notes_fit_the_method_and_the_model(capfd):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval()
    images = torch.randn(24, 3, 8, 8)
    tllib_ancon.adapt(model, images, method="tent", epochs=1, workers=0)
    assert "augmentation" not in capfd.readouterr().err
    tllib_ancon.adapt(model, images, method="ancon", epochs=1, workers=0)
    assert "no augmentation is used" in capfd.readouterr().err
    with one_line('no parameter of the model learns with `adapted="as-given"`; .* `adapted="all"`'):
        tllib_ancon.adapt(model.requires_grad_(False), images, epochs=1, workers=0)
