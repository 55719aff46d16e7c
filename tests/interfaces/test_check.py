"""``check`` shows what ``adapt`` would do with a model and images, and changes neither."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision.transforms import ToTensor
from torchvision.transforms.functional import to_tensor

import tllib_ancon
from tests.support import sides
from tests.support.json_files import read_json
from tests.support.killable import differences
from tests.support.levels import levels, write
from tests.support.networks import HALVES, state_of
from tests.support.places import ROOT
from tests.support.refusals import one_line
from tests.support.teachers import PICTURES, Colours, Student
from tllib_ancon import check
from tllib_ancon.cli.main import main
from tllib_ancon.data.transforms import Preprocessing

LEVEL = {**HALVES, "image_size": 8, "workers": 0}


class Detached(Student):
    @torch.no_grad()
    def forward(self, images):
        return super().forward(images)


SHOWN = read_json(ROOT / "tests" / "support" / "checks.json")


look = partial(check, mixed_precision="no", workers=0)


def of_pixels():
    images = np.tile(PICTURES, (2, 1, 1, 1))
    return look(Student(), images, method="self-training", **HALVES, image_size=8, seed=4)


def of_tensors():
    images = torch.linspace(0, 1, 12).view(-1, 1, 1, 1).expand(-1, 3, 8, 8)
    return look(Student(["cat", "dog", "owl"]), images, method="tent")


def of_folders():
    names = ["ant", "bee", "cat", "dog", "eel", "fox"]
    model = levels(6, class_names=names, preprocessing=Preprocessing((0.0,) * 3, (1.0,) * 3, 8, origin="its metadata"))
    return look(model, write(Path("photos"), map(str.title, names), 6), method="shot")


def of_features():
    network = nn.Sequential(nn.BatchNorm1d(3), nn.Softplus())
    return look(network, torch.ones(8, 3), method="adabn", class_names=["a", "b", "c"])


def of_mirrors():
    images, _ = sides.pictures(True)
    return look(sides.network(True), images, method="self-training", views=2, evaluation_transform=ToTensor())


CALLS = (of_pixels, of_tensors, of_folders, of_features, of_mirrors)


@pytest.mark.parametrize("call", CALLS)
def test_it_shows_facts_then_settings_then_notes(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(call()).splitlines() == SHOWN[call.__name__]


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("logits are not finite on any image", lambda: Colours(factor=torch.nan)),
        ("no parameter that learns reaches the loss", Detached),
    ],
)
def test_what_ends_an_adaptation_ends_the_check(text, model):
    for door in (check, tllib_ancon.adapt):
        with one_line(text):
            door(model(), PICTURES, **LEVEL)


def test_the_picture_shows_each_input_scaled_to_its_range(tmp_path):
    for channels, used in ((2, [0, 0, 0]), (4, [0, 1, 2])):
        model = nn.Sequential(nn.Flatten(), nn.Linear(36 * channels, 3))
        inputs = torch.randn(8, channels, 6, 6)
        with Image.open(check(model, inputs, out=tmp_path).picture) as picture:
            pixels = to_tensor(picture)
        assert pixels.shape == (3, 18, 34)  # two rows of four, 2 pixels between them
        first = inputs[0, used]
        scaled = (first - first.min()) / (first.max() - first.min())
        torch.testing.assert_close(pixels[:, 2:8, 2:8], scaled, atol=1 / 255, rtol=0)
    with one_line(r"^`out` draws images \(C, H, W\), and these inputs have shape \(20,\); leave it out$"):
        check(nn.Linear(20, 3), torch.zeros(8, 20), out=tmp_path)


def test_the_command_prints_the_same_and_writes_it_as_json(domains, source_checkpoint, tmp_path, capsys):
    words = [str(domains / "dark"), "--checkpoint", str(source_checkpoint.parents[1]), "-j", "0"]
    assert main(["check", *words, "--json", str(tmp_path / "check.json"), "--out", str(tmp_path / "look")]) == 0
    shown = capsys.readouterr().out
    assert (tmp_path / "look" / "images.png").is_file()
    written = json.loads((tmp_path / "check.json").read_text())
    assert written["settings"]["image_size"] == {"value": 16, "layer": "source run"}
    assert all(text in shown for text in written["facts"].values())
    assert len(written["predicted"]) == 48


def test_the_model_and_random_numbers_are_unchanged():
    model = Student().train()
    model[1].eval()
    before = state_of(model)
    generator = torch.get_rng_state()
    check(model, PICTURES, **LEVEL)
    assert differences(before, state_of(model)) == []
    assert model.training
    assert not model[1].training
    assert model[5].training
    assert torch.equal(torch.get_rng_state(), generator)
