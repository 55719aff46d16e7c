"""Checkpoints and networks as they lie around adapt as they are: changed heads, channels, normalisation inside."""

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torch import nn

import tllib_ancon
from tests.support.networks import PIXELS
from tests.support.refusals import one_line
from tllib_ancon.cli.main import main
from tllib_ancon.models.bottleneck import shot_classifier
from tllib_ancon.models.networks import create_backbone

HALVES = ["--norm-mean", "0.5", "0.5", "0.5", "--norm-std", "0.5", "0.5", "0.5"]
IMAGES = PIXELS[:8]
HOW = {"image_size": 32, "crop_fraction": 1.0, "quiet": False, "workers": 0}


def network(**options):
    torch.manual_seed(0)
    return timm.create_model("test_resnet", num_classes=4, **options).eval()


MODULE = """
from torch import nn
from torchvision import models

def build():
    network = models.shufflenet_v2_x0_5()
    network.fc = nn.Sequential(nn.Dropout(), nn.Linear(1024, 4))
    return network
"""


def test_a_changed_head_names_a_way_that_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = {}
    exec(MODULE, module)
    torch.save(module["build"]().state_dict(), "model.pth")
    with one_line(r"also holds fc\.1\.weight, .* pass the network itself"):
        tllib_ancon.predict("model.pth", IMAGES, arch="torchvision/shufflenet_v2_x0_5")
    (tmp_path / "changed_head.py").write_text(MODULE)
    Image.new("RGB", (32, 32)).save("a.png")
    words = ["predict", "a.png", "--model", "changed_head:build", "--checkpoint", "model.pth", "--image-size", "32"]
    assert main([*words, *HALVES, "--out", "p.csv"]) == 0


def test_the_assumed_size_is_the_one_that_is_used(tmp_path, capfd):
    torch.save(network().state_dict(), tmp_path / "model.pth")
    Image.fromarray(IMAGES[0]).save(tmp_path / "a.png")
    words = ["predict", str(tmp_path / "a.png"), "-a", "timm/test_resnet", "--checkpoint", str(tmp_path / "model.pth")]
    assert main([*words, "--out", str(tmp_path / "a.csv")]) == 0
    assert "lies in no run directory; assumed: image_size 160\n" in capfd.readouterr().err
    assert main([*words, "--image-size", "160", "--out", str(tmp_path / "b.csv")]) == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_a_network_of_one_channel_adapts_by_its_path(tmp_path, capfd):
    checkpoint = tmp_path / "grey.pth"
    torch.save(network(in_chans=1).state_dict(), checkpoint)
    with one_line(r"is torch.float32 \(\d+, 1, 3, 3\), not torch.float32 \(\d+, 3, 3, 3\); give its `arch_option`"):
        tllib_ancon.predict(checkpoint, IMAGES, arch="timm/test_resnet")
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(16):
        image = Image.new("L", (32, 32), number * 10)
        image.save(photos / f"{number}.png")
    start = ["-a", "timm/test_resnet", "--arch-option", "in_chans=1", "--checkpoint", str(checkpoint)]
    words = ["adapt", str(photos), *start, "--image-size", "32", "--epochs", "1", "--log", str(tmp_path / "run")]
    assert main(words) == 2
    assert "to have 1 channels, but got 3" in capfd.readouterr().err
    assert main([*words, "--norm-mean", "0.5", "--norm-std", "0.5"]) == 0


def test_four_channels_are_one_line():
    with one_line(r"cannot be called on images of shape \(8, 3, 32, 32\).*to have 4 channels, but got 3"):
        tllib_ancon.predict(network(in_chans=4), IMAGES, image_size=32)


class Normalises(nn.Module):
    """A wrapper that normalises images of levels up to 255."""

    def __init__(self):
        super().__init__()
        self.network = network()

    def forward(self, images):
        return self.network((images / 255 - 0.5) / 0.2)


def normalising_subclass():
    """A network of timm whose class has a forward of its own."""
    plain = network()

    class NormalisingResNet(type(plain)):
        def forward(self, images):
            return super().forward((images - 0.5) / 0.2)

    plain.__class__ = NormalisingResNet
    return plain


@pytest.mark.parametrize(("build", "levels"), [(normalising_subclass, 1.0), (Normalises, 255.0)])
def test_a_module_around_a_network_has_no_preprocessing_and_the_advice_leads_on(build, levels):
    model = build().eval()
    with torch.no_grad():
        images = torch.from_numpy(IMAGES).permute(0, 3, 1, 2) / 255
        expected = model(images * levels).softmax(1)
    with one_line("the preprocessing of this network is unknown; pass .* itself 0 and 1, or 0 and 0.003922 if"):
        tllib_ancon.predict(model, IMAGES, **HOW)
    norm = {"norm_mean": (0.0,) * 3, "norm_std": (1 / levels,) * 3}
    np.testing.assert_allclose(tllib_ancon.predict(model, IMAGES, **norm, **HOW).probabilities, expected, atol=1e-4)


def test_weights_that_do_not_fit_the_users_network_get_advice_about_that_network(tmp_path):
    torch.save(timm.create_model("test_resnet", num_classes=7).state_dict(), tmp_path / "model.pth")
    with one_line(r"is torch.float32 \(7, .*; give the network that it was trained with"):
        tllib_ancon.predict(network(), IMAGES, checkpoint=str(tmp_path / "model.pth"), **HOW)


@pytest.mark.parametrize("door", [tllib_ancon.adapt, tllib_ancon.predict])
def test_another_size_than_a_checkpoint_takes_is_one_line(door, tmp_path):
    model = shot_classifier(create_backbone("shot_lenet", pretrained=False), 4, pool=False)
    torch.save(model.state_dict(), tmp_path / "model.pth")
    halves = {"norm_mean": (0.5,), "norm_std": (0.5,)}
    how = {"arch": "shot_lenet", "no_pool": True, "workers": 0, **halves}
    with one_line(r"cannot be called on images of shape .*64, 64.* pass .*`image_size`"):
        door(tmp_path / "model.pth", IMAGES, image_size=64, **how)
    quick = {"epochs": 1} if door is tllib_ancon.adapt else {}
    door(tmp_path / "model.pth", IMAGES, image_size=28, **how, **quick)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:FutureWarning")
def test_a_program_in_the_place_of_weights_is_one_line(tmp_path):
    torch.jit.script(nn.Linear(2, 2)).save(tmp_path / "a.pt")
    with one_line(r"cannot be read as a checkpoint \(.*TorchScript.*save the weights alone: torch.save"):
        tllib_ancon.predict(tmp_path / "a.pt", IMAGES, **HOW)
