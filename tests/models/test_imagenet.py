from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tllib_ancon.errors import UserError
from tllib_ancon.models.imagenet import imagenet_classifier


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    from torchvision import models

    torch.manual_seed(3)
    torch.save(models.resnet18().state_dict(), tmp_path / "resnet18.pth")
    return tmp_path / "resnet18.pth"


def test_logits_are_those_of_the_whole_network(weights: Path) -> None:
    from torchvision import models

    network = models.resnet18()
    network.load_state_dict(torch.load(weights, weights_only=True))
    model = imagenet_classifier("resnet18", weights_file=weights)
    images = torch.rand(2, 3, 64, 64)
    logits, features = model.eval().predict(images)
    assert torch.equal(logits, network.eval()(images))
    assert features.shape == (2, 512)
    assert (model.num_classes, model.features_dim) == (1000, 512)


def test_a_timm_network() -> None:
    import timm

    torch.manual_seed(0)
    network = timm.create_model("test_resnet").eval()
    torch.manual_seed(0)
    model = imagenet_classifier("test_resnet", pretrained=False).eval()
    images = torch.rand(1, 3, 64, 64)
    assert torch.equal(model(images), network(images))


def test_every_part_learns_at_the_full_rate(weights: Path) -> None:
    model = imagenet_classifier("resnet18", weights_file=weights)
    assert {group["lr"] for group in model.get_parameters(0.001)} == {0.001}


def test_what_cannot_be_a_start(weights: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'resnet18'"):
        imagenet_classifier("resnt18", pretrained=False)
    with pytest.raises(UserError, match="does not fit"):
        imagenet_classifier("resnet34", weights_file=weights)
    with pytest.raises(UserError, match="does not exist"):
        imagenet_classifier("resnet18", weights_file=tmp_path / "none.pth")


def test_resnets_are_those_of_torchvision() -> None:
    network = imagenet_classifier("resnet18", pretrained=False).backbone
    assert type(network).__module__ == "torchvision.models.resnet"
