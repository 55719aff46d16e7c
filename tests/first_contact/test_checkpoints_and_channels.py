"""Checkpoints and networks as they lie around: entries, prefixes, changed heads, channels, normalisation inside."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torch import nn
from torchvision import models, transforms

import tllib_ancon
from tllib_ancon.cli.main import main
from tllib_ancon.models.loading import load
from tllib_ancon.runtime.errors import UserError


def weights(**options: Any) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return timm.create_model("test_resnet", num_classes=4, **options).state_dict()


def prefixed(prefix: str) -> dict[str, torch.Tensor]:
    return {prefix + name: tensor for name, tensor in weights().items()}


FILES = {
    "net": lambda: {"net": weights(), "acc": 91.2, "epoch": 3},
    "odd name": lambda: {"student": weights(), "epoch": 3},
    "NumPy numbers": lambda: {
        "state_dict": weights(),
        "best": np.float64(91.2),
        "step": np.int64(3),
        "f": np.float32(1),
    },
    "ema first": lambda: {"model": {name: 0 * tensor for name, tensor in weights().items()}, "ema": weights()},
    "entry of an entry": lambda: {"model": {"state_dict": weights(), "epoch": 3}},
    "compiled": lambda: prefixed("_orig_mod."),
    "DataParallel": lambda: {"state_dict": prefixed("module.")},
    "Lightning": lambda: {"state_dict": prefixed("net."), "epoch": 1},
}


@pytest.mark.parametrize("kind", FILES)
def test_weights_are_found_in_the_files_of_training_programs(kind: str, tmp_path: Path) -> None:
    torch.save(FILES[kind](), tmp_path / "model.pth")
    classifier = load(tmp_path / "model.pth", "timm/test_resnet")
    expected = weights()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in classifier.network.state_dict().items())


def test_a_convolution_as_head_gives_the_number_of_classes(tmp_path: Path) -> None:
    torch.save(models.squeezenet1_1(num_classes=4).state_dict(), tmp_path / "model.pth")
    assert load(tmp_path / "model.pth", "torchvision/squeezenet1_1").num_classes == 4


def test_files_that_cannot_be_read_name_a_way_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "model.pth"
    torch.save(nn.Linear(2, 2), file)
    with pytest.raises(UserError, match=r"would run code of the file\); save the weights alone: torch\.save"):
        load(file, "timm/test_resnet")
    torch.save({"student": weights(), "teacher": weights()}, file)
    with pytest.raises(UserError, match=r"save the weights alone: torch\.save"):
        load(file, "timm/test_resnet")
    torch.save(weights(in_chans=1), file)
    with pytest.raises(UserError, match="for a network of 1 channels pass `arch_option=in_chans=1`"):
        load(file, "timm/test_resnet")
    network = models.shufflenet_v2_x0_5()
    network.fc = nn.Sequential(nn.Dropout(), nn.Linear(1024, 4))
    torch.save(network.state_dict(), file)
    with pytest.raises(UserError, match=r"fc\.1\.weight is not part .* pass `model=MODULE:FUNCTION`"):
        load(file, "torchvision/shufflenet_v2_x0_5")
    text = (
        "from torch import nn\nfrom torchvision import models\n\n"
        "def build():\n    network = models.shufflenet_v2_x0_5()\n"
        "    network.fc = nn.Sequential(nn.Dropout(), nn.Linear(1024, 4))\n    return network\n"
    )
    (tmp_path / "changed_head.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (32, 32)).save("a.png")
    how = [
        "--image-size",
        "32",
        "--norm-mean",
        "0.5",
        "0.5",
        "0.5",
        "--norm-std",
        "0.5",
        "0.5",
        "0.5",
        "--out",
        "p.csv",
    ]
    assert main(["predict", "a.png", "--model", "changed_head:build", "--checkpoint", "model.pth", *how]) == 0


@pytest.mark.parametrize("norm", [[], ["--norm-mean", "0.5", "--norm-std", "0.5"]])
def test_a_network_of_one_channel_adapts_by_its_path(
    norm: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    torch.save(weights(in_chans=1), tmp_path / "grey.pth")
    (tmp_path / "photos").mkdir()
    for number in range(16):
        Image.new("L", (32, 32), number * 10).save(tmp_path / "photos" / f"{number}.png")
    start = ["-a", "timm/test_resnet", "--arch-option", "in_chans=1", "--checkpoint", str(tmp_path / "grey.pth")]
    words = ["adapt", str(tmp_path / "photos"), *start, *norm, "--image-size", "32", "--epochs", "1"]
    assert main([*words, "--log", str(tmp_path / "run")]) == 0
    assert ("takes one channel; assumed" in capfd.readouterr().err) == (not norm)


def test_four_channels_are_one_line() -> None:
    images = np.zeros((16, 32, 32, 3), np.uint8)
    network = timm.create_model("test_resnet", num_classes=4, in_chans=4)
    with pytest.raises(UserError, match="takes images of 4 channels, and images here get 3"):
        tllib_ancon.predict(network, images, image_size=32)


class Own(nn.Module):
    def __init__(self, network: nn.Module, scale: float = 1.0):
        super().__init__()
        self.network, self.scale = network, scale
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.network((images / self.scale - self.mean) / 0.2)


def network() -> nn.Module:
    return timm.create_model("test_resnet", num_classes=4).eval()


INSIDE = {
    "layer": (lambda: nn.Sequential(transforms.Normalize([0.4, 0.5, 0.6], [0.2] * 3), network()), 1.0),
    "wrapper": (lambda: Own(network()), 1.0),
    "wrapper of levels": (lambda: Own(network(), 255.0), 255.0),
}


@pytest.mark.parametrize("kind", INSIDE)
def test_a_model_that_normalises_itself_gets_images_as_they_are(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    build, levels = INSIDE[kind]
    model = build().eval()
    images = np.random.default_rng(0).integers(0, 255, (8, 32, 32, 3), dtype=np.uint8)
    with torch.no_grad():
        expected = model(torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255 * levels).softmax(1)
    predicted = tllib_ancon.predict(model, images, image_size=32, crop_fraction=1.0, quiet=False).probabilities
    np.testing.assert_allclose(predicted, expected, atol=1e-4)
    assert "the model normalises images itself" in capfd.readouterr().err


def test_metadata_of_a_part_count_where_images_enter_it_unchanged(capfd: pytest.CaptureFixture[str]) -> None:
    images = np.random.default_rng(0).integers(0, 255, (8, 32, 32, 3), dtype=np.uint8)
    torch.manual_seed(0)
    plain = network()
    how = {"image_size": 32, "crop_fraction": 1.0, "quiet": False}
    expected = tllib_ancon.predict(plain, images, **how).probabilities
    assert not capfd.readouterr().err
    np.testing.assert_allclose(tllib_ancon.predict(nn.Sequential(plain), images, **how).probabilities, expected)
    assert "which images enter unchanged" in capfd.readouterr().err
    squared = nn.Sequential(nn.Softplus(), plain)
    with pytest.raises(UserError, match=r"`norm_mean` and `norm_std` .0 and 1 for a model that normalises"):
        tllib_ancon.predict(squared, images, **how)
