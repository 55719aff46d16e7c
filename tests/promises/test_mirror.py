"""Images whose classes a mirror exchanges are not mirrored by default settings."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import tllib_ancon
from tests.support.json_files import read_json
from tests.support.sides import LEVEL, SIDE, network, of_patterns, pictures


def adapt(sides, **settings):
    images, labels = pictures(sides)
    return tllib_ancon.adapt(network(sides), images, labels=labels, epochs=1, **LEVEL, **settings)


def about_mirrors(capfd):
    return [line for line in capfd.readouterr().err.splitlines() if "images are not mirrored" in line]


def test_classes_that_a_mirror_exchanges_are_not_mirrored():
    result = adapt(sides=True)
    assert result.metrics[-1]["accuracy"] == 100
    assert result.config.no_hflip is True


def test_a_mirror_that_exchanges_classes_is_found_although_a_shift_changes_many_predictions(capfd):
    left = torch.randn(3, SIDE, SIDE // 2, generator=torch.Generator().manual_seed(0))
    pattern = torch.cat([left, -left.flip(2)], 2)
    net = of_patterns(torch.stack([pattern, -pattern]))
    images = np.random.default_rng(0).integers(0, 256, (48, SIDE, SIDE, 3), dtype=np.uint8)
    assert tllib_ancon.adapt(net, images, epochs=1, **LEVEL).config.no_hflip is True
    (line,) = about_mirrors(capfd)
    assert "100 % of 48 images" in line
    assert "a small shift of 50 %" in line


@pytest.mark.parametrize("noise", [0.1, 20.0])
def test_a_mirror_that_changes_some_classes_is_told_from_errors(noise, capfd):
    """Ten coarse patterns, of which a mirror leaves five as they are. Under noise a shift makes others too."""
    generator = torch.Generator().manual_seed(0)
    patterns = nn.functional.interpolate(torch.randn(10, 3, 4, 4, generator=generator), SIDE, mode="bilinear")
    patterns[:5] += patterns[:5].flip(3)
    net = of_patterns(patterns / 20)
    classes = torch.arange(96) % 10
    images = patterns[classes] + noise * torch.randn(96, 3, SIDE, SIDE, generator=generator)
    levels = images / images.std() * 30 + 128
    pixels = levels.clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    result = tllib_ancon.adapt(net, pixels, epochs=1, lr=1e-5, **LEVEL)
    is_seen = noise < 1
    assert result.config.no_hflip is is_seen
    assert len(about_mirrors(capfd)) == is_seen


@pytest.mark.parametrize("sides", [True, False])
def test_a_source_model_that_predicts_one_class_is_compared_as_it_trains(sides, capfd):
    net = network(sides)
    net[0] = nn.Sequential(net[0], nn.BatchNorm2d(3, momentum=1.0)).eval()
    with torch.no_grad():
        net[2].bias.copy_(torch.tensor([3.0, -3.0]))
    state = copy.deepcopy(net.state_dict())
    images, labels = pictures(sides)
    dark = images // 20
    result = tllib_ancon.adapt(net, dark, labels=labels, epochs=1, **LEVEL)
    assert result.metrics[0]["accuracy"] == 50  # all of one class
    assert result.config.no_hflip is sides
    assert len(about_mirrors(capfd)) == sides
    torch.testing.assert_close(net.state_dict(), state)
    if sides:
        assert result.metrics[-1]["accuracy"] == 100


def test_who_asks_for_mirrors_gets_them():
    assert adapt(sides=True, no_hflip=False).config.no_hflip is False


def test_a_run_is_resumed_and_certified_as_it_began(tmp_path):
    first = adapt(sides=True, log=tmp_path / "run")
    assert first.config.no_hflip is True
    recorded = read_json(tmp_path / "run" / "config.json")
    assert recorded["network"]["preprocessing"]["horizontal_flip"] is False
    assert adapt(sides=True, log=tmp_path / "run").config.no_hflip is True
    images, labels = pictures(True)
    predicted = tllib_ancon.predict(network(sides=True), images, checkpoint=str(tmp_path / "run"))
    assert (predicted.labels == labels).all()
