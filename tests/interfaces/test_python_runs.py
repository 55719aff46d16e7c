"""Every command goes on from the run directory of a model that was given as a Python object."""

import sys

import numpy as np
import pytest
import timm
import torch
from PIL import Image

import tllib_ancon
from tests.support.killable import differences
from tests.support.networks import HALVES
from tllib_ancon.cli.main import main

IMAGES = 24
LABELS = [number % 3 for number in range(IMAGES)]
MODULE = """
from torch import nn

def build():
    layers = nn.Conv2d(3, 6, 3, stride=4), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(6, 3))

def nothing():
    return 1
"""
QUICK = {"method": "shot-im", "epochs": 3, "batch_size": 4, "workers": 0, "quiet": True, "lr": 0.3}
SIZED = {"image_size": 32}


def of_timm():
    return timm.create_model("test_vit", img_size=32, patch_size=8, depth=2, num_classes=3)


def of_no_library():
    namespace = {}
    exec(MODULE, namespace)  # as a program would that keeps it in no module
    network = namespace["build"]()
    network[5].weight.data *= 50  # so that images are of several classes
    return network


NETWORKS = {
    "timm": (of_timm, SIZED),
    "own": (of_no_library, {**SIZED, **HALVES}),
}
OWN = pytest.mark.parametrize("made", ["own"], indirect=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with ``photos/`` and the module of the network that no library has."""
    folder = tmp_path_factory.mktemp("made")
    generator = np.random.default_rng(0)
    (folder / "photos").mkdir()
    (folder / "networks.py").write_text(MODULE)
    for number in range(IMAGES):
        pixels = generator.integers(0, 20 + 9 * number, (32, 32, 3), dtype=np.uint8)
        pixels[..., 2] *= number % 2
        image = Image.fromarray(pixels)
        image.save(folder / "photos" / f"{number:02d}.png")
    return folder


@pytest.fixture(scope="module", params=NETWORKS)
def made(request, folder):
    """The kind of a network, the network and the result of its adaptation."""
    build, sizes = NETWORKS[request.param]
    torch.manual_seed(0)
    model = build()
    result = tllib_ancon.adapt(model, folder / "photos", labels=LABELS, log=folder / request.param, **QUICK, **sizes)
    return request.param, model, result


@pytest.fixture
def flags(made, folder, monkeypatch):
    """What a command needs beside the directory, in a folder with the network's module."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", str(folder))])
    if made[0] == "own":
        return ["--model", "networks:build"]
    return []


def test_every_command_goes_on_from_its_directory(made, flags, folder, tmp_path, capsys):
    name, model, result = made
    photos = ["-d", "Folder", "-t", "photos", "--checkpoint", name]
    for words in (
        ["predict", "photos", "--checkpoint", name, "--probabilities", "--out", str(tmp_path / "out.npz"), "-j", "0"],
        ["evaluate", ".", *photos, "-j", "0"],
        ["certify", name, "--root", "photos", "-j", "0"],
        ["adapt", ".", *photos, "--epochs", "1", "--log", f"{name}-again", "-j", "0"],
    ):
        assert main([*words, *flags]) == 0, capsys.readouterr().err
    expected = tllib_ancon.predict(result.model, "photos", workers=0, **NETWORKS[name][1])
    if flags:
        predictions = tllib_ancon.predict(model, "photos", workers=0, checkpoint=name)
    else:
        predictions = tllib_ancon.predict(name, "photos", workers=0)
    np.testing.assert_array_equal(predictions.probabilities, expected.probabilities)
    assert "infomax of the 2 held-out images" in result._repr_html_()
    written = np.load(tmp_path / "out.npz")
    order = np.argsort(written["paths"])
    np.testing.assert_allclose(written["probabilities"][order], expected.probabilities, atol=1e-6)
    source = torch.load(folder / name / "checkpoints" / "source.pth", weights_only=True)
    assert differences(dict(model.state_dict()), source) == []


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ([], "pass the network itself, with these weights, as --model"),
        (["--model", "networks"], "--model networks cannot be imported"),
        (["--model", "networks:missing"], "cannot be imported (module 'networks' has no attribute"),
        (["--model", "networks:nothing"], "not of type int"),
    ],
)
@OWN
def test_a_network_that_nothing_builds_is_asked_for_before_images_are_opened(made, flags, model, message, refused):
    assert message in refused(["predict", "nowhere", "--checkpoint", "own", *model])
