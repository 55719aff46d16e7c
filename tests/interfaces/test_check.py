"""``check`` shows what ``adapt`` would do with a model and images, and changes neither."""

import json

import pytest
import timm
import torch
from PIL import Image
from torch import nn
from torchvision.transforms.functional import to_tensor

import tllib_ancon
from tests.support.domains_on_disk import write_domain
from tests.support.killable import differences
from tests.support.networks import HALVES, state_of
from tests.support.refusals import one_line
from tests.support.teachers import PICTURES, Colours, Student
from tllib_ancon import check
from tllib_ancon.cli.main import main

LEVEL = {**HALVES, "image_size": 8, "workers": 0}


class Detached(Student):
    @torch.no_grad()
    def forward(self, images):
        return super().forward(images)


SHOWN = """\
  images          36 images of ndarray
  preprocessing   mean 0.5 0.5 0.5, std 0.5 0.5 0.5
  input           (3, 8, 8), values -1 to 0.404
  classes         3 classes in this order: 0, 1, 2; the model has no names for them: compare the order with its training
  output          logits (B, 3); head 5, 6 features
  learning        4 of 6 parameters: 0.weight, 0.bias, 1.weight, 1.bias
  predictions     2 53 %, 0 33 %, 1 14 %; 3 of 3 classes in 36 images
  mirror          a mirror changes the predicted class of 14 % of 36 images
settings, and what decides each:
  `batch_size`        32                  images
  `image_size`        8                   user
  `loss`              cross-entropy       method
  `method`            self-training       user
  `mixed_precision`   no                  user
  `norm_mean`         [0.5, 0.5, 0.5]     user
  `norm_std`          [0.5, 0.5, 0.5]     user
  `optimizer`         sgd                 model
  `padding`           1                   images
  `train_resizing`    cen.crop            images
  `val_resizing`      default             images
  `workers`           0                   user
notes:"""
SHOWN_OF_TENSORS = """\
  images          12 images of Tensor
  preprocessing   none: the model gets the tensors unchanged
  input           (3, 8, 8), values 0 to 0.909
  classes         3 classes in this order: cat, dog, owl
  output          logits (B, 3); head 5, 6 features
  learning        2 of 6 parameters: 1.weight, 1.bias
  predictions     owl 100 %; 1 of 3 classes in 12 images
  mirror          a mirror changes the predicted class of 0 % of 12 images
settings, and what decides each:
  `adapted`           norm-affine         method
  `batch_size`        11                  images
  `method`            tent                user
  `mixed_precision`   no                  user
  `optimizer`         sgd                 model
notes:
  ! the images are tensors with values from 0 to 0.909, which the model gets unchanged; if it was trained on \
normalised images, normalise them, or pass them as bytes
  ! only 12 of at least 16 images: adapting may reduce accuracy; add images
  ! the model predicts owl for 100 % of 12 images; nearly all are one class: compare the preprocessing with the \
model's training"""


def test_it_shows_facts_then_settings_then_notes():
    assert str(check(Student(), PICTURES, method="self-training", mixed_precision="no", **LEVEL)) == SHOWN
    tensors = torch.linspace(0, 1, 12).view(-1, 1, 1, 1).expand(-1, 3, 8, 8)
    assert str(check(Student(["cat", "dog", "owl"]), tensors, method="tent", mixed_precision="no")) == SHOWN_OF_TENSORS


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


def test_the_command_prints_the_same_and_writes_it_as_json(tmp_path, capsys):
    write_domain(tmp_path, "photos", 24, seed=0, side=40)
    torch.manual_seed(0)
    torch.save(timm.create_model("test_resnet", num_classes=3).state_dict(), tmp_path / "model.pth")
    words = [str(tmp_path / "photos"), "-a", "timm/test_resnet", "--checkpoint", str(tmp_path / "model.pth")]
    assert main(["check", *words, "--json", str(tmp_path / "check.json"), "--out", str(tmp_path / "look")]) == 0
    shown = capsys.readouterr().out
    assert (tmp_path / "look" / "images.png").is_file()
    written = json.loads((tmp_path / "check.json").read_text())
    assert written["settings"]["image_size"] == {"value": 160, "layer": "model"}
    assert all(text in shown for text in written["facts"].values())
    assert len(written["predicted"]) == 24


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
