"""A path to an image list opens its images with their labels."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tllib_ancon
from tests.support.networks import Net

PREPROCESSING = {"image_size": 8, "norm_mean": (0, 0, 0), "norm_std": (1, 1, 1), "quiet": True}


@pytest.fixture
def photos(tmp_path):
    for number in range(4):
        image = Image.new("RGB", (8, 8), (60 * number, 0, 0))
        image.save(tmp_path / f"{number}.png")
    return tmp_path


def test_an_image_list_is_read_with_its_labels(photos):
    image_list = photos / "target.txt"
    image_list.write_text("0.png 0\n1.png 1\n2.png 0\n3.png 1\n")
    predictions = tllib_ancon.predict(Net(2), image_list, **PREPROCESSING)
    assert [Path(path).name for path in predictions.paths] == ["0.png", "1.png", "2.png", "3.png"]
    right = (np.asarray(predictions.labels) == [0, 1, 0, 1]).mean()
    assert tllib_ancon.evaluate(Net(2), image_list, **PREPROCESSING).accuracy == pytest.approx(100 * right)
    result = tllib_ancon.adapt(Net(2), image_list, epochs=1, **PREPROCESSING)
    assert "accuracy" in result.metrics[-1]
