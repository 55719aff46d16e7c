"""Weights that do not fit a network get a line that names what the file holds, and an action that works."""

import argparse
import shlex

import pytest
import timm
import torch
from PIL import Image
from torch import nn
from torchvision.models import resnet18

import tllib_ancon
from tests.support.refusals import one_line
from tllib_ancon.cli.main import main

IN_FOLDER = shlex.split("--image-size 32 --norm-mean .5 .5 .5 --norm-std .5 .5 .5 --out p.csv --overwrite")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (32, 32)).save("a.png")
    return tmp_path


def test_weights_of_another_network_are_named_whole(folder):
    state = {f"an_encoder_of_images.{number}.weight": torch.zeros(4) for number in range(9)}
    torch.save(state | {"conv1.weight": torch.zeros(2), "fc.weight": torch.zeros(3)}, "model.pth")
    with one_line(
        r"conv1\.weight is torch.float32 \(2,\), not .* 9\d more of the network.*images\.3\.weight, and 5 more; "
    ):
        tllib_ancon.predict("model.pth", folder, arch="resnet18")


@pytest.mark.parametrize("head", ["classifier.", "head.fc."])
def test_a_head_by_another_name_is_named(head, folder):
    backbone = resnet18()
    del backbone.fc
    state = {f"backbone.{name}": tensor for name, tensor in backbone.state_dict().items()}
    state |= {f"{head}{name}": tensor for name, tensor in nn.Linear(512, 7).state_dict().items()}
    torch.save({"state_dict": state}, "model.pth")
    with one_line(
        rf"fc\.weight, fc\.bias of the network are missing; the file also holds {head}weight.*pass the network itself"
    ):
        tllib_ancon.predict("model.pth", folder, arch="resnet18")


def test_the_advice_for_two_sets_of_weights_works(folder, capsys):
    state = timm.create_model("test_resnet", num_classes=4).state_dict()
    torch.save({"state_dict": state, "state_dict_ema": state, "args": argparse.Namespace(lr=0.1)}, "model.pth")
    words = ["predict", "a.png", "-a", "timm/test_resnet", *IN_FOLDER, "--checkpoint"]
    assert main([*words, "model.pth"]) == 2
    printed = capsys.readouterr().err
    assert "state_dict, state_dict_ema, args; " in printed
    assert "torch.save(torch.load(FILE, weights_only=False)[ENTRY], NEW_FILE)" in printed
    torch.save(torch.load("model.pth", weights_only=False)["state_dict"], "alone.pth")
    assert main([*words, "alone.pth"]) == 0
