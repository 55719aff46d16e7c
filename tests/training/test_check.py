"""``check`` states each fact about a model and images, in Python and on the command line, and changes neither."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torch import nn

import tllib_ancon
from tests.domains_on_disk import write_domain
from tests.end_to_end.killable import differences
from tests.first_contact.test_mirror import network
from tests.first_contact.test_mirror import pictures as pictures_of_sides
from tests.json_files import read_json
from tests.networks import state_of
from tllib_ancon import check
from tllib_ancon.cli.main import main
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


TWO_CLASSES = as_domain(pictures(), labels=[number % 2 for number in range(24)], classes=["cat", "dog"])


def checked(model=None, images=None, **settings):
    model = Colours() if model is None else model
    images = pictures() if images is None else images
    return check(model, images, **{**NORMALISED, **settings})


@pytest.mark.parametrize(
    ("fact", "mark", "text", "model", "settings"),
    [
        ("classes", "", "3 classes; the model has no names for them", Colours, {}),
        ("classes", "!", "the images have 2 classes", Colours, {"images": TWO_CLASSES}),
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
    assert checked(images=TWO_CLASSES).classes.values == {"number": 3, "model": [], "images": ["cat", "dog"]}


def test_a_timm_checkpoint_on_a_folder(words, tmp_path, capsys):
    assert main([*words, "--out", str(tmp_path / "look"), "--json", str(tmp_path / "facts.json")]) == 0
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    names = [line[2:18].rstrip() for line in lines[: len(FACTS)]]
    assert [name.replace(" ", "_") for name in names] == FACTS
    for expected in (
        f"24 images of photos; the first is {words[1]}/blue/002.png  [--data, --target]",
        "? classes         3 classes; the model has no names for them; ",
        "its subfolders are not taken as classes (blue, green, red)",
        "40 × 40 pixels; decoded values 0 to 199 of 255",
        "files of 24 × RGB; the network gets 3 (RGB)  [--norm-mean, --norm-std]",
        "crop 160 × 160, mean 0.5 0.5 0.5, std 0.5 0.5 0.5; from timm's metadata  [--image-size, ",
        "logits (B, 3); head fc, ",
        "training learns from the image and its mirror  [--no-hflip, --views]",
        "fixed: fc.weight to fc.bias  [--adapted, --method]",
        "the target's statistics, mixed with the source model's  [--batch-norm]",
    ):
        assert expected in shown
    assert "evaluation" not in shown  # it is no flag
    assert lines[-1] == f"images as the network gets them: {tmp_path / 'look' / 'images.png'}"
    facts = read_json(tmp_path / "facts.json")
    assert [*facts] == [*FACTS, "picture"]
    assert facts["classes"]["values"] == {"number": 3, "model": [], "images": []}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """``photos`` with class folders, and a checkpoint of timm."""
    folder = tmp_path_factory.mktemp("checked")
    write_domain(folder, "photos", 24, seed=0, side=40)
    torch.manual_seed(0)
    torch.save(timm.create_model("test_resnet", num_classes=3).state_dict(), folder / "model.pth")
    return folder


@pytest.fixture
def words(folder):
    return ["check", str(folder / "photos"), "-a", "timm/test_resnet", "--checkpoint", str(folder / "model.pth")]


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


def test_classes_that_a_mirror_exchanges():
    model = network(sides=True)
    images, _ = pictures_of_sides(sides=True)
    result = checked(model, images)
    assert result.mirror.mark == "?"
    assert result.mirror.values["share"] == 1.0
    assert "changes the predicted class of 100 % of 48 images, a small shift 0 %: left and right may be" in str(result)
    assert "training does not mirror" in result.mirror.text
    assert checked(model, images, no_hflip=True).mirror.mark == ""
    assert "training learns from the image and its mirror" in checked(model, images, no_hflip=False).mirror.text


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


def test_of_many_images_a_sample_is_predicted():
    assert "in 64 images" in checked(images=pictures(200)).predictions.text


def test_tensors_of_any_shape_are_described(tmp_path):
    features = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    result = check(nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3)), features)
    assert result.pixels.text.startswith("tensors of shape (5,), values -")
    assert result.preprocessing.text == "none: the model gets the tensors unchanged"
    assert result.mirror.values == {"share": None}
    with pytest.raises(tllib_ancon.UserError, match="`out` draws images"):
        check(nn.Linear(5, 3), features, out=tmp_path / "look")
    assert not (tmp_path / "look").exists()


@pytest.mark.parametrize("count", [24, 3])
def test_the_picture_shows_the_images_as_the_network_gets_them(count, tmp_path):
    """Tiles lie where they should, in the colours of the decoded images."""
    colours = [(40 + 8 * number, 200, 9 * number) for number in range(count)]
    images = np.stack([np.full((32, 32, 3), colour, np.uint8) for colour in colours])
    result = checked(images=images, out=tmp_path / "look")
    assert result.picture == tmp_path / "look" / "images.png"
    drawn = np.asarray(Image.open(result.picture).convert("RGB")).astype(int)
    assert drawn.shape[1] >= 1200
    corners = []
    shown = np.unique(np.linspace(0, count - 1, 8).astype(int))
    for colour in images[shown, 0, 0]:
        is_tile = (abs(drawn - colour) <= 1).all(2)
        assert is_tile.sum() > 280 * 280
        corners.append(tuple(np.argwhere(is_tile)[0]))
    assert corners == sorted(corners)
    assert len({row for row, _ in corners}) == -(-len(corners) // 4)
    caption = drawn[-80:, : drawn.shape[1] // 4]
    assert (caption < 100).all(2).sum() > 200


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(5, 3), r"the model cannot be called on images of shape \(8, 3, 32, 32\)"),
        ("no.pth", "no.pth is not a file"),
        (None, "no model to start from: pass `checkpoint`"),
        (len, "must be a torch.nn.Module"),
    ],
)
def test_a_model_that_cannot_be_used(model, message):
    with pytest.raises(tllib_ancon.UserError, match=message):
        check(model, pictures(8), image_size=32, **NORMALISED)


def test_names_of_the_classes(words, tmp_path, capsys):
    (tmp_path / "names.txt").write_text("blue\ngreen\nred\n")
    assert main([*words, "--class-names", str(tmp_path / "names.txt"), "--image-size", "32"]) == 0
    shown = capsys.readouterr().out
    names = "the model's names in order: blue, green, red; those of the images in order: blue, green, red"
    assert f"  classes         3 classes; {names}  [--class-names]\n" in shown
    assert "; their labels are used only to report the accuracy" in shown
    assert "from your settings (--image-size), the rest from timm's metadata" in shown
