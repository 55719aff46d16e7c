"""Images to tensors, in a worker and on the device, against torchvision, timm, Pillow and TLLib."""

import importlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import timm.data
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor
from torchvision import transforms as T
from torchvision.transforms.v2 import functional as F

from tests.data.conftest import epoch_of
from tests.toolkit.conftest import requires_tllib
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.transforms import (
    Geometry,
    ImageTransform,
    Preprocessing,
    Resizing,
    crop_batch,
    device_augmentation,
    evaluation_transform,
    train_transform,
)
from tllib_ancon.errors import UserError

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
    with pytest.raises(UserError, match="`device_augmentation` needs squares"):
        device_augmentation(Preprocessing(train_resizing="keep-ratio"))


def shown(domain: Domain, transform: ImageTransform, **more: int) -> Tensor:
    """The images of an epoch as levels, in the domain's order."""
    indices, images = epoch_of(domain, transform, **more)
    return images[indices.argsort()]


@pytest.mark.parametrize("resizing", ["default", "cen.crop", "ran.crop", "res."])
@pytest.mark.parametrize(
    "more",
    [{}, {"horizontal_flip": False}, {"scale": (0.08, 1.0)}, {"padding": 3}, GREY],
    ids=["flip", "no flip", "strong", "padding", "grey"],
)
def test_on_the_device_each_image_is_what_a_worker_would_have_made_of_it(domain, resizing: str, more: Any) -> None:
    options = replace(OPTIONS, train_resizing=resizing, **more)
    for epoch in (0, 1):
        expected = shown(domain, train_transform(options), epoch=epoch)
        augmented = shown(domain, device_augmentation(options), epoch=epoch)
        assert (augmented.dtype, augmented.shape, augmented.is_contiguous()) == (torch.float32, expected.shape, True)
        assert (augmented - expected).abs().round().max() <= LEVELS


def test_a_rotation_may_take_another_of_two_nearest_pixels(domain: Domain) -> None:
    options = replace(OPTIONS, train_resizing="ran.crop", rotation=30.0)
    difference = shown(domain, device_augmentation(options)) - shown(domain, train_transform(options))
    assert (difference.abs().round() > LEVELS).float().mean() < 0.01


@st.composite
def geometries(draw: st.DrawFn) -> Geometry:
    height, width = draw(st.integers(1, SIDE)), draw(st.integers(1, SIDE))
    top, left = draw(st.integers(0, SIDE - height)), draw(st.integers(0, SIDE - width))
    return Geometry(top, left, height, width, draw(st.integers(-5, 5)), draw(st.integers(-5, 5)), draw(st.booleans()))


def one_by_one(square: Tensor, geometry: Geometry, size: int) -> Tensor:
    top, left, height, width, down, right, flip = geometry
    resized = F.resized_crop(square, top, left, height, width, [size, size], antialias=True)
    shifted = F.crop(F.pad(resized, [5]), down + 5, right + 5, size, size)
    return F.horizontal_flip(shifted) if flip else shifted


@given(st.lists(geometries(), min_size=1, max_size=4), st.sampled_from([2, 7, SIZE, 40]), st.integers(0, 99))
def test_crops_at_once_are_torchvisions_kernels_one_by_one(drawn: list[Geometry], size: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    squares = torch.randint(256, (len(drawn), 3, SIDE, SIDE), generator=generator, dtype=torch.uint8)
    pairs = zip(squares, drawn, strict=True)
    expected = torch.stack([one_by_one(square, geometry, size) for square, geometry in pairs])
    with torch.autocast("cpu", torch.bfloat16):  # of the network; it does not reach images
        cropped = crop_batch(squares, drawn, size)
    assert (cropped.dtype, cropped.shape) == (torch.uint8, expected.shape)
    assert (cropped.int() - expected.int()).abs().max() <= LEVELS
    exact = drawn[0]._replace(top=2, left=3, height=SIZE, width=SIZE)
    assert torch.equal(crop_batch(squares[:1], [exact], SIZE)[0], one_by_one(squares[0], exact, SIZE))
