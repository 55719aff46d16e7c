"""``check`` states each fact about a model and images, in Python and on the command line, and changes neither."""

import dataclasses
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from torch import nn

import tllib_ancon
from tests.support.domains_on_disk import write_domain
from tests.support.killable import differences
from tests.support.networks import state_of
from tests.support.sides import network
from tests.support.sides import pictures as pictures_of_sides
from tllib_ancon import check
from tllib_ancon.data.open import as_domain
from tllib_ancon.training.first_pass import NEARLY_ONE_CLASS

NORMALISED = {"norm_mean": (0.5,) * 3, "norm_std": (0.25,) * 3}
FACTS = [
    *("images", "classes", "pixels", "channels", "preprocessing", "output"),
    *("mirror", "predictions", "parameters", "batch_norm"),
]


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


def collapsed():
    model = Colours()
    model.head.bias.data[0] = 9.0
    return model


def flat(*ends):
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 3), *ends)


def pictures(count=24, most=256):
    """Noise with one strong colour each."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, most // 2, (count, 32, 32, 3)).astype(np.uint8)
    numbers = np.arange(count)
    images[numbers, ..., numbers % 3] += np.uint8(most // 2 - 1)
    return images


TWO_CLASSES = replace(as_domain(pictures(), labels=[number % 2 for number in range(24)]), classes=["cat", "dog"])


def checked(model=None, images=None, **settings):
    model = Colours() if model is None else model
    images = pictures() if images is None else images
    return check(model, images, **{**NORMALISED, **settings})


@pytest.mark.parametrize(
    ("fact", "mark", "text", "model", "settings"),
    [
        ("classes", "", "3 classes; the model has no names for them", Colours, {}),
        ("classes", "?", "those of the images in order: cat, dog", lambda: Colours(2), {"images": TWO_CLASSES}),
        ("pixels", "", "32 × 32 pixels; decoded values 0 to 254 of 255", Colours, {}),
        ("pixels", "?", "the images are nearly black", Colours, {"images": pictures(most=16)}),
        ("preprocessing", "", "your settings (`norm_mean`, `norm_std`), the rest from the defaults", Colours, {}),
        ("channels", "", "the network gets 3 (RGB)", Colours, {}),
        ("output", "", "logits (B, 3); head head, 3 features", Colours, {}),
        ("output", "!", "NaN or infinity for 24 of 24 images", lambda: Colours(bias=torch.nan), {}),
        ("mirror", "", "of 0 % of 24 images; training learns", Colours, {}),
        ("mirror", "", "training does not mirror", Colours, {"no_hflip": True, "views": 1}),
        ("predictions", "", "0 33 %, 1 33 %, 2 33 %; 3 of 3 classes in 24 images", Colours, {}),
        ("predictions", "?", "0 100 %; 1 of 3 classes in 24 images; nearly all are one class", collapsed, {}),
        ("parameters", "", "4 of 6 learn (60 % of 30 weights), convolution.weight to norm.bias", Colours, {}),
        ("parameters", "", "2 of 6 learn (20 % of 30 weights), norm.weight to", Colours, {"adapted": "norm-affine"}),
        ("parameters", "", "2 of 2 learn", flat, {}),
        ("parameters", "", "none learns: adabn trains nothing", Colours, {"method": "adabn"}),
        ("batch_norm", "", "1 layer; the target's statistics, mixed with the source model's", Colours, {}),
        ("batch_norm", "", "1 layer; the source model's statistics stay", Colours, {"batch_norm": "source"}),
        ("batch_norm", "", "no layer", flat, {}),
        ("parameters", "!", "no parameter that learns with `adapted=all-but-head` reaches the loss", Detached, {}),
    ],
)
def test_each_fact(fact, mark, text, model, settings):
    result = checked(model(), **settings)
    assert text in result.facts[fact].text
    assert result.facts[fact].mark == mark
    assert result.is_wrong == any(fact.mark == "!" for fact in result.facts.values())


def test_values_for_programs():
    assert checked(Colours(2), TWO_CLASSES).classes.values == {"number": 2, "model": [], "images": ["cat", "dog"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """``photos`` with class folders, and a checkpoint of timm."""
    folder = tmp_path_factory.mktemp("checked")
    write_domain(folder, "photos", 24, seed=0, side=40)
    torch.manual_seed(0)
    torch.save(timm.create_model("test_resnet", num_classes=3).state_dict(), folder / "model.pth")
    return folder


def test_in_python_the_model_and_random_numbers_are_unchanged():
    model = Colours().train()
    model.norm.eval()
    model.head.weight.requires_grad_(False)
    before = state_of(model)
    generator = torch.get_rng_state()
    result = checked(model)
    assert [*result.facts] == FACTS
    second = str(result).splitlines()[1]
    assert second == "  classes         3 classes; the model has no names for them  [`class_names`]"
    assert differences(before, state_of(model)) == []
    assert model.training
    assert not model.norm.training
    assert model.head.training
    assert [name for name, value in model.named_parameters() if not value.requires_grad] == ["head.weight"]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    assert torch.equal(torch.get_rng_state(), generator)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.picture = Path()


def test_adapt_says_the_same_of_predicted_classes_and_mirrors(capsys):
    images, labels = pictures_of_sides(sides=True)
    settings = {**NORMALISED, "image_size": 16, "workers": 0}
    facts = check(network(sides=True), images[labels == 0], **settings)
    assert facts.predictions.text == "0 100 %; 1 of 2 classes in 24 images; " + NEARLY_ONE_CLASS
    tllib_ancon.adapt(network(sides=True), images[labels == 0], epochs=1, **settings)
    said = capsys.readouterr().err
    assert f"the source model predicts 0 for 100 % of 24 images; {NEARLY_ONE_CLASS}" in said
    assert "another one for 100 % of 24 mirrored images, and for 0 % of shifted ones" in said
    assert "changes the predicted class of 100 % of 24 images, a small shift 0 %" in facts.mirror.text
