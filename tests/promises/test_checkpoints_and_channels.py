"""Checkpoints and networks as they lie around adapt as they are: changed heads, channels, normalisation inside."""

import numpy as np
import timm
import torch
from PIL import Image
from torch import nn

import tllib_ancon
from tests.support.networks import PIXELS
from tests.support.refusals import one_line
from tllib_ancon.cli.main import main

IMAGES = PIXELS[:8]
HOW = {"image_size": 32, "crop_fraction": 1.0, "quiet": False, "workers": 0}


def network(**options):
    torch.manual_seed(0)
    return timm.create_model("test_resnet", num_classes=4, **options).eval()


def test_the_assumed_size_is_the_one_that_is_used(tmp_path, capfd):
    torch.save(network().state_dict(), tmp_path / "model.pth")
    Image.fromarray(IMAGES[0]).save(tmp_path / "a.png")
    words = ["predict", str(tmp_path / "a.png"), "-a", "timm/test_resnet", "--checkpoint", str(tmp_path / "model.pth")]
    assert main([*words, "--out", str(tmp_path / "a.csv")]) == 0
    assert f"{tmp_path}/model.pth lies in no run directory; assumed: image_size 160\n" in capfd.readouterr().err
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


class Normalises(nn.Module):
    """A wrapper that normalises images of levels up to 255."""

    def __init__(self):
        super().__init__()
        self.network = network()

    def forward(self, images):
        return self.network((images / 255 - 0.5) / 0.2)


def test_a_module_around_a_network_has_no_preprocessing_and_the_advice_leads_on():
    model = Normalises().eval()
    with torch.no_grad():
        expected = model(torch.from_numpy(IMAGES).permute(0, 3, 1, 2)).softmax(1)
    with one_line("the preprocessing of this network is unknown; pass .* itself 0 and 1, or 0 and 0.003922 if"):
        tllib_ancon.predict(model, IMAGES, **HOW)
    norm = {"norm_mean": (0.0,) * 3, "norm_std": (1 / 255,) * 3}
    np.testing.assert_allclose(tllib_ancon.predict(model, IMAGES, **norm, **HOW).probabilities, expected, atol=1e-4)


def test_weights_that_do_not_fit_the_users_network_get_advice_about_that_network(tmp_path):
    torch.save(timm.create_model("test_resnet", num_classes=7).state_dict(), tmp_path / "model.pth")
    with one_line(r"is torch.float32 \(7, .*; give the network that it was trained with"):
        tllib_ancon.predict(network(), IMAGES, checkpoint=str(tmp_path / "model.pth"), **HOW)
