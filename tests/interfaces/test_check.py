"""``check`` shows what ``adapt`` would do with a model and images, and changes neither."""

import json

import numpy as np
import pytest
import timm
import torch
from torch import nn

import tllib_ancon
from tests.support.domains_on_disk import write_domain
from tests.support.killable import differences
from tests.support.networks import state_of
from tests.support.refusals import one_line
from tests.support.sides import network
from tests.support.sides import pictures as pictures_of_sides
from tllib_ancon import check
from tllib_ancon.cli.main import main

NORMALISED = {"norm_mean": (0.5,) * 3, "norm_std": (0.25,) * 3}


class Colours(nn.Module):
    """Mean colours (B, 3) through batch-norm and a head, so that each image has its own class."""

    def __init__(self, num_classes=3, bias=0.0):
        super().__init__()
        self.convolution = nn.Conv2d(3, 3, 1)
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(3, num_classes)
        with torch.no_grad():
            self.convolution.weight.copy_(torch.eye(3)[:, :, None, None])
            self.head.weight.copy_(torch.eye(3)[:num_classes])
            self.head.bias.copy_(torch.full((num_classes,), bias))

    def features(self, images):
        return self.norm(self.convolution(images)).mean((2, 3))

    def forward(self, images):
        return self.head(self.features(images))


class Detached(Colours):
    def features(self, images):
        with torch.no_grad():
            return super().features(images)


def pictures(count=24):
    """Noise with one strong colour each."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 128, (count, 32, 32, 3)).astype(np.uint8)
    numbers = np.arange(count)
    images[numbers, ..., numbers % 3] += np.uint8(127)
    return images


def checked(model=None, **settings):
    model = Colours() if model is None else model
    return check(model, pictures(), **{**NORMALISED, **settings})


def test_it_shows_facts_then_settings_then_notes():
    expected = [
        "  images          24 images of ndarray",
        "  preprocessing   mean 0.5 0.5 0.5, std 0.25 0.25 0.25",
        "  input           (3, 32, 32), values -2 to 1.98",
        "  classes         3 classes in this order: 0, 1, 2; the model has no names for them",
        "  output          logits (B, 3); head head, 3 features",
        "  learning        4 of 6 parameters: convolution.weight, convolution.bias, norm.weight, norm.bias",
        "; 3 of 3 classes in 24 images",
        "  mirror          a mirror changes the predicted class of 0 % of 24 images",
        "  `batch_norm`        mixed               method",
        "  `padding`           4                   images",
    ]
    shown = str(checked())
    places = [shown.find(line) for line in expected]
    assert -1 not in places
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("text", "model", "settings"),
    [
        ("  classes         2 classes in this order: cat, dog\n", lambda: Colours(2), {"class_names": ("cat", "dog")}),
        ("  learning        2 of 6 parameters: norm.weight, norm.bias", Colours, {"adapted": "norm-affine"}),
        ("  `lr`                0.02                user", Colours, {"lr": 0.02}),
    ],
)
def test_a_line_follows_the_model_and_the_settings(text, model, settings):
    assert text in str(checked(model(), **settings))


@pytest.mark.parametrize(
    ("text", "model", "settings"),
    [
        ("logits are not finite on any image", lambda: Colours(bias=torch.nan), {}),
        ("no parameter that learns reaches the loss", Detached, {}),
    ],
)
def test_what_ends_an_adaptation_ends_the_check(text, model, settings):
    for door in (check, tllib_ancon.adapt):
        with one_line(text):
            door(model(), pictures(), **NORMALISED, **settings)


def test_the_command_prints_the_same_and_writes_it_as_json(tmp_path, capsys):
    write_domain(tmp_path, "photos", 24, seed=0, side=40)
    torch.manual_seed(0)
    torch.save(timm.create_model("test_resnet", num_classes=3).state_dict(), tmp_path / "model.pth")
    words = [str(tmp_path / "photos"), "-a", "timm/test_resnet", "--checkpoint", str(tmp_path / "model.pth")]
    assert main(["check", *words, "--json", str(tmp_path / "check.json"), "--out", str(tmp_path / "look")]) == 0
    shown = capsys.readouterr().out
    assert "  --image-size        160                 model" in shown
    assert (tmp_path / "look" / "images.png").is_file()
    written = json.loads((tmp_path / "check.json").read_text())
    assert written["settings"]["image_size"] == {"value": 160, "layer": "model"}
    assert all(text in shown for text in written["facts"].values())
    assert len(written["predicted"]) == 24


def test_the_model_and_random_numbers_are_unchanged():
    model = Colours().train()
    model.norm.eval()
    before = state_of(model)
    generator = torch.get_rng_state()
    checked(model)
    assert differences(before, state_of(model)) == []
    assert model.training
    assert not model.norm.training
    assert model.head.training
    assert torch.equal(torch.get_rng_state(), generator)


def test_adapt_says_the_same_of_predicted_classes_and_mirrors():
    images, labels = pictures_of_sides(sides=True)
    settings = {**NORMALISED, "image_size": 16, "workers": 0}
    checked_notes = check(network(sides=True), images[labels == 0], **settings).notes
    assert {"no-mirrors", "one-class"} <= {note.code for note in checked_notes}
    result = tllib_ancon.adapt(network(sides=True), images[labels == 0], epochs=1, quiet=True, **settings)
    assert result.notes[: len(checked_notes)] == checked_notes
