"""CIFAR-10-C: corruptions follow severity and seed alone."""

import numpy as np
import pytest
from PIL import Image

from benchmarks.cifar10_c.corruptions import CORRUPTIONS, corrupted

WITHOUT_A_DRAW = {"defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression"}


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).integers(0, 256, (24, 32, 32, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def frost(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frost")
    picture = np.random.default_rng(0).integers(0, 256, (200, 240, 3), dtype=np.uint8)
    for name in ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg"):
        Image.fromarray(picture).save(folder / name)
    return folder


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_images_change_by_severity_and_seed_alone(images, frost, name):
    before = images.copy()
    mild, severe = (corrupted(images, name, severity, 1, frost) for severity in (1, 5))
    for changed in (mild, severe):
        assert (changed.shape, changed.dtype) == (images.shape, np.uint8)
        assert not np.array_equal(changed, images)
    assert not np.array_equal(mild, severe)
    assert np.array_equal(corrupted(images, name, 5, 1, frost), severe)
    assert np.array_equal(corrupted(images, name, 5, 2, frost), severe) == (name in WITHOUT_A_DRAW)
    assert np.array_equal(images, before)
