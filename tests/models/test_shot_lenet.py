"""SHOT's network for digits: its LeNet, and dropout after the bottleneck."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.domains_on_disk import small_arguments, write_domains
from tllib_ancon.cli.main import main
from tllib_ancon.errors import UserError
from tllib_ancon.models.backbones import create_backbone
from tllib_ancon.models.classifier import BottleneckClassifier, adaptation_mode
from tllib_ancon.models.loading import load, source_model

IMAGES = torch.randn(8, 1, 28, 28, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def model() -> BottleneckClassifier:
    torch.manual_seed(0)
    return source_model(create_backbone("shot_lenet"), 10, bottleneck_dropout=0.5)


def naive(layers: nn.Sequential, images: Tensor) -> Tensor:
    """The published order: convolution, pooling, ReLU; convolution, dropout, pooling, ReLU."""
    functional = nn.functional
    first, second = (layer for layer in layers if isinstance(layer, nn.Conv2d))
    maps = functional.max_pool2d(functional.conv2d(images, first.weight, first.bias), 2).relu()
    maps = functional.max_pool2d(functional.conv2d(maps, second.weight, second.bias), 2).relu()
    return maps.reshape(len(images), -1)


def test_the_backbone_gives_800_features(model: BottleneckClassifier) -> None:
    features = model.eval().backbone(IMAGES)
    assert features.shape == (8, 800)
    torch.testing.assert_close(features, naive(model.backbone.layers, IMAGES))
    assert sum(parameter.numel() for parameter in model.backbone.parameters()) == 20 * 26 + 50 * 501


def test_half_of_the_features_are_dropped_in_training_alone(model: BottleneckClassifier) -> None:
    features = model.train().predict(IMAGES)[1]
    assert 0.4 < (features == 0).float().mean() < 0.6
    assert (model.eval().predict(IMAGES)[1] != 0).all()


@pytest.mark.parametrize("dropout", [False, True])
def test_adaptation_drops_features_if_asked(model: BottleneckClassifier, dropout: bool) -> None:
    adaptation_mode(model, dropout)
    assert bool((model.predict(IMAGES)[1] == 0).any()) == dropout


def test_a_checkpoint_is_loaded_with_its_dropout(model: BottleneckClassifier, tmp_path: Path) -> None:
    torch.save(model.state_dict(), tmp_path / "model.pth")
    loaded = load(tmp_path / "model.pth", "shot_lenet", bottleneck_dropout=0.3)
    assert isinstance(loaded, BottleneckClassifier)
    assert loaded.bottleneck[-1].p == 0.3
    assert set(loaded.state_dict()) == set(model.state_dict())
    assert torch.equal(loaded.eval()(IMAGES), model.eval()(IMAGES))
    assert len(load(tmp_path / "model.pth", "shot_lenet").bottleneck) == 2


def test_dropout_needs_a_bottleneck_that_has_none(model: BottleneckClassifier) -> None:
    with pytest.raises(UserError, match=r"`bottleneck_dropout=0.2`: this model has dropout there already"):
        model.drop_features(0.2)
    model.bottleneck = nn.Identity()
    with pytest.raises(UserError, match="this model has no bottleneck"):
        model.drop_features(0.2)
    with pytest.raises(UserError, match="checkpoint imagenet has no bottleneck"):
        load("imagenet", "resnet18", scratch=True, bottleneck_dropout=0.2)


def test_dropout_is_not_for_a_whole_network(tmp_path: Path) -> None:
    from torchvision.models import resnet18

    torch.save(resnet18(num_classes=3).state_dict(), tmp_path / "whole.pth")
    with pytest.raises(UserError, match=r"whole\.pth has no bottleneck"):
        load(tmp_path / "whole.pth", "resnet18", bottleneck_dropout=0.2)


def test_an_adaptation_inherits_the_dropout_of_its_source_model(tmp_path: Path) -> None:
    arguments = small_arguments(write_domains(tmp_path))
    run = tmp_path / "run"
    flags = ["-t", "dark", "--epochs", "1", "--adapt-epochs", "1", "--adapt-batch-size", "16", "--log", str(run)]
    assert main(["run", *arguments, *flags, "--bottleneck-dropout", "0.4"]) == 0
    config = json.loads((run / "adapt" / "config.json").read_text())
    assert config["bottleneck_dropout"] == 0.4
