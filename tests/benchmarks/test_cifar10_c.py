"""CIFAR-10-C: corruptions follow severity and seed alone, and the example of another network runs."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage

from benchmarks.cifar10_c.corruptions import CORRUPTIONS, corrupted
from benchmarks.cifar10_c.networks import ResNet

NOT_MONOTONE = {"glass_blur", "elastic_transform", "frost"}  # by their constants
CERTAIN = {"defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression"}


@pytest.fixture(scope="module")
def images():
    """Smooth, but for a little noise."""
    random = np.random.default_rng(0)
    uniform = random.uniform(size=(24, 32, 32, 3))
    smooth = ndimage.gaussian_filter(uniform, (0, 2, 2, 0), mode="wrap")
    noise = random.normal(scale=2, size=smooth.shape)
    pixels = 128 + 1500 * (smooth - 0.5) + noise
    return np.clip(pixels, 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def frost(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frost")
    for number in range(1, 6):
        generator = np.random.default_rng(number)
        picture = generator.integers(0, 256, size=(200, 240, 3), dtype=np.uint8)
        ending = "png" if number < 4 else "jpg"
        Image.fromarray(picture).save(folder / f"frost{number}.{ending}")
    return folder


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_images_change_with_severity_and_by_the_seed_alone(images, frost, name):
    before = images.copy()
    made = [corrupted(images, name, severity, 1, frost) for severity in range(1, 6)]
    for one in made:
        assert one.shape == images.shape
        assert one.dtype == np.uint8
    changes = [np.abs(one.astype(int) - images).mean() for one in made]
    assert min(changes) > 0
    assert name in NOT_MONOTONE or changes == sorted(changes)
    assert np.array_equal(corrupted(images, name, 5, 1, frost), made[4])
    assert np.array_equal(corrupted(images, name, 5, 2, frost), made[4]) == (name in CERTAIN)
    assert np.array_equal(images, before)


@pytest.fixture
def stored(tmp_path, images):
    """A folder with 24 pictures and a network of random weights under the names of the public ones."""
    labels = np.zeros(len(images), np.int64)
    np.savez(tmp_path / "test.npz", x=images, y=labels)
    torch.manual_seed(0)
    state = ResNet(1, 10).state_dict()
    weights = {f"module.{name}": value for name, value in state.items()}
    torch.save({"state_dict": weights}, tmp_path / "resnet20-12fca82f.th")
    return tmp_path


def test_the_example_of_somebody_elses_network(stored, monkeypatch, capsys):
    example = Path(__file__).parents[2] / "examples" / "somebody_elses_network.py"
    monkeypatch.chdir(stored)
    monkeypatch.delenv("CIFAR10", raising=False)
    runpy.run_path(str(example))
    assert "set CIFAR10" in capsys.readouterr().out
    monkeypatch.setenv("CIFAR10", str(stored))
    runpy.run_path(str(example))
    first, *rest = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"[\d.]+ % before, [\d.]+ % after", first)
    assert "disagreements have a label, of 24 images" in " ".join(rest)
    assert (stored / "somebody_elses_network.png").is_file()
