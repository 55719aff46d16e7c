from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import timm.data
import torch
from PIL import Image

from tests.toolkit.conftest import requires_tllib
from tllib_ancon.data.resizing import Resizing, default_resizing
from tllib_ancon.data.transforms import TransformOptions, evaluation_transform, train_transform
from tllib_ancon.errors import UserError

SIZES = [(50, 30), (30, 50), (64, 64), (17, 300), (256, 256)]
PLAIN: dict[str, Any] = {"norm_mean": (0.0,) * 3, "norm_std": (1.0,) * 3}


def picture(size: tuple[int, int]) -> Image.Image:
    width, height = size
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def toolkit_resizing(side: int) -> Any:
    return importlib.import_module("tllib.vision.transforms").ResizeImage(side)


def pillow_default(side: int) -> Any:
    return lambda image: image.resize((side, side))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("theirs", [pillow_default, pytest.param(toolkit_resizing, marks=requires_tllib)])
def test_the_square_is_that_of_the_toolkits_class(size: tuple[int, int], theirs: Any) -> None:
    image = picture(size)
    assert np.array_equal(np.asarray(Resizing(40)(image)), np.asarray(theirs(40)(image)))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("image_size", "crop_fraction"), [(28, 0.875), (30, 0.95), (31, 1.0), (96, 0.875)])
def test_evaluation_that_keeps_the_ratio_is_timms(size: tuple[int, int], image_size: int, crop_fraction: float) -> None:
    options = TransformOptions(val_resizing="keep-ratio", image_size=image_size, crop_fraction=crop_fraction, **PLAIN)
    theirs = timm.data.create_transform(
        image_size, interpolation="bicubic", crop_pct=crop_fraction, mean=(0, 0, 0), std=(1, 1, 1)
    )
    assert torch.equal(evaluation_transform(options)(picture(size)), theirs(picture(size)))


@pytest.mark.parametrize("size", [(50, 30), (30, 50)])
def test_training_that_keeps_the_ratio_crops_the_unsquashed_picture(size: tuple[int, int]) -> None:
    from torchvision import transforms as T

    options = TransformOptions("keep-ratio", image_size=21, **PLAIN)
    theirs = T.Compose(
        [
            *(T.Resize(24, T.InterpolationMode.BICUBIC), T.RandomResizedCrop(21, options.scale, options.ratio)),
            *(T.RandomHorizontalFlip(), T.ToTensor()),
        ]
    )
    for seed in range(5):
        tensors = []
        for transform in (train_transform(options), theirs):
            torch.manual_seed(seed)
            tensors.append(transform(picture(size)))
        assert torch.equal(*tensors)


def test_what_is_in_the_middle_keeps_its_shape() -> None:
    pixels = np.zeros((90, 160, 3), np.uint8)
    pixels[25:65, 60:100] = 255
    for resizing, shape in (("keep-ratio", (40, 40)), ("default", (40, 22))):
        options = TransformOptions(val_resizing=resizing, image_size=79, crop_fraction=79 / 90, **PLAIN)
        lit = evaluation_transform(options)(Image.fromarray(pixels))[0] > 0.5
        assert lit.sum(0).max() == shape[0]
        assert abs(int(lit.sum(1).max()) - shape[1]) <= 1


@pytest.mark.parametrize(
    ("dataset", "resizing"),
    [
        *((name, "default") for name in ("Office31", "ImageList", "Digits", "ImageNetC", "CorruptedImages")),
        *((name, "keep-ratio") for name in ("ImageFolder", "Folder", "hf:uoft-cs/cifar10", "")),
    ],
)
def test_the_default_follows_the_dataset(dataset: str, resizing: str) -> None:
    assert default_resizing(dataset) == (resizing, resizing)


def test_a_picture_too_narrow_to_keep_its_ratio_is_refused() -> None:
    with pytest.raises(UserError, match="1 x 9000 pixels, its shorter side resized to 256"):
        Resizing(256, keep_ratio=True)(Image.new("RGB", (1, 9000)))
