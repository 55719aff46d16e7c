"""Images to tensors, against torchvision, timm, Pillow and TLLib."""

import importlib
from typing import Any

import numpy as np
import pytest
import timm.data
import torch
from PIL import Image
from torchvision import transforms as T

from tests.toolkit.conftest import requires_tllib
from tllib_ancon.data.transforms import (
    Preprocessing,
    Resizing,
    evaluation_transform,
    train_transform,
)
from tllib_ancon.runtime.errors import UserError

SIZES = [(50, 30), (30, 50), (64, 64), (17, 300), (256, 256)]
PLAIN: dict[str, Any] = {"mean": (0.0,) * 3, "std": (1.0,) * 3}
GREY: dict[str, Any] = {"mean": (0.0,), "std": (1 / 255,)}
SIDE, SIZE = 32, 28
OPTIONS = Preprocessing(image_size=SIZE, resize_size=20, scale=(0.3, 1.0), mean=(0.0,) * 3, std=(1 / 255,) * 3)
LEVELS = 2
"""Of 255: Pillow rounds between its passes over columns and rows and has finer weights than torch."""


def image(size: tuple[int, int]) -> Image.Image:
    width, height = size
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def toolkit_resizing(side: int) -> Any:
    return importlib.import_module("tllib.vision.transforms").ResizeImage(side)


def pillow_default(side: int) -> Any:
    return lambda image: image.resize((side, side))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("theirs", [pillow_default, pytest.param(toolkit_resizing, marks=requires_tllib)])
def test_the_square_is_that_of_the_toolkits_class(size: tuple[int, int], theirs: Any) -> None:
    assert np.array_equal(np.asarray(Resizing(40)(image(size))), np.asarray(theirs(40)(image(size))))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("image_size", "crop_fraction"), [(28, 0.875), (30, 0.95), (31, 1.0), (96, 0.875)])
def test_evaluation_that_keeps_the_ratio_is_timms(size: tuple[int, int], image_size: int, crop_fraction: float) -> None:
    options = Preprocessing(val_resizing="keep-ratio", image_size=image_size, crop_fraction=crop_fraction, **PLAIN)
    theirs = timm.data.create_transform(
        image_size, interpolation="bicubic", crop_pct=crop_fraction, mean=(0, 0, 0), std=(1, 1, 1)
    )
    assert torch.equal(evaluation_transform(options)(image(size)), theirs(image(size)))


@pytest.mark.parametrize(
    ("mean", "more"), [((0.5,), {}), ((0.4, 0.5, 0.6), {"padding": 3}), ((0.4, 0.5, 0.6), {"rotation": 30.0})]
)
@pytest.mark.parametrize(("resizing", "resized"), [("default", (24, 24)), ("keep-ratio", 24), ("ran.crop", (24, 24))])
def test_training_is_torchvisions_steps(mean: tuple[float, ...], more: Any, resizing: str, resized: Any) -> None:
    std = tuple(value / 2 for value in mean)
    options = Preprocessing(train_resizing=resizing, image_size=21, scale=(0.3, 1.0), mean=mean, std=std, **more)
    steps = [
        T.Resize(resized, T.InterpolationMode.BICUBIC),
        T.RandomCrop(21) if resizing == "ran.crop" else T.RandomResizedCrop(21, options.scale, options.ratio),
        *([T.RandomCrop(21, padding=3)] if "padding" in more else []),
        *([T.RandomRotation(30)] if "rotation" in more else []),
        *(T.RandomHorizontalFlip(), *([T.Grayscale()] if len(mean) == 1 else [])),
        *(T.ToTensor(), T.Normalize(mean, std)),
    ]
    for seed in range(6):
        tensors = []
        for transform in (train_transform(options), T.Compose(steps)):
            torch.manual_seed(seed)
            tensors.append(transform(image((50, 30))))
        assert torch.equal(*tensors)


def test_refusals() -> None:
    with pytest.raises(UserError, match="`norm_mean` has 1 values and `norm_std` 3"):
        Preprocessing(mean=(0.5,))
