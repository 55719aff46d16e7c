"""Images become the tensors that torchvision, timm, Pillow and TLLib make of them."""

import importlib

import numpy as np
import pytest
import timm.data
import torch
from PIL import Image
from torchvision import transforms as T

from tests.support.refusals import refused
from tests.support.tllib import requires_tllib
from tllib_ancon.data.transforms import (
    Preprocessing,
    Resizing,
)

SIZES = [(50, 30), (17, 300)]
PLAIN = {"mean": (0.0,) * 3, "std": (1.0,) * 3}


def image(size):
    width, height = size
    generator = np.random.default_rng(0)
    return Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8))


def toolkit_resizing(side):
    return importlib.import_module("tllib.vision.transforms").ResizeImage(side)


@requires_tllib
@pytest.mark.parametrize("size", SIZES)
def test_the_square_is_that_of_the_toolkits_class(size):
    assert np.array_equal(Resizing(40)(image(size)), toolkit_resizing(40)(image(size)))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("image_size", "crop_fraction"), [(28, 0.875), (30, 0.95), (31, 1.0)])
def test_evaluation_that_keeps_the_ratio_is_timms(size, image_size, crop_fraction):
    options = Preprocessing(val_resizing="keep-ratio", image_size=image_size, crop_fraction=crop_fraction, **PLAIN)
    theirs = timm.data.create_transform(
        image_size, interpolation="bicubic", crop_pct=crop_fraction, mean=(0, 0, 0), std=(1, 1, 1)
    )
    assert torch.equal(options.for_evaluation()(image(size)), theirs(image(size)))


@pytest.mark.parametrize(
    ("mean", "more"), [((0.5,), {}), ((0.4, 0.5, 0.6), {"padding": 3}), ((0.4, 0.5, 0.6), {"rotation": 30.0})]
)
@pytest.mark.parametrize(("resizing", "resized"), [("default", (24, 24)), ("keep-ratio", 24), ("ran.crop", (24, 24))])
def test_training_is_torchvisions_steps(mean, more, resizing, resized):
    std = tuple(value / 2 for value in mean)
    options = Preprocessing(train_resizing=resizing, image_size=21, scale=(0.3, 1.0), mean=mean, std=std, **more)
    crop = T.RandomResizedCrop(21, options.scale, options.ratio)
    if resizing == "ran.crop":
        crop = T.RandomCrop(21)
    steps = [T.Resize(resized, T.InterpolationMode.BICUBIC), crop]
    if "padding" in more:
        steps.append(T.RandomCrop(21, padding=3))
    if "rotation" in more:
        steps.append(T.RandomRotation(30))
    steps.append(T.RandomHorizontalFlip())
    if len(mean) == 1:
        steps.append(T.Grayscale())
    steps += [T.ToTensor(), T.Normalize(mean, std)]
    for seed in range(6):
        tensors = []
        for transform in (options.for_training(), T.Compose(steps)):
            torch.manual_seed(seed)
            tensors.append(transform(image((50, 30))))
        assert torch.equal(*tensors)


@pytest.mark.parametrize(
    ("options", "reach"),
    [
        ({"padding": 3}, 3),
        ({"image_size": 32}, 4),
        ({"padding": 2, "train_resizing": "cen.crop"}, 2),
        ({"train_resizing": "res.", "image_size": 40}, None),
    ],
)
def test_the_second_view_is_mirrored_as_in_training_else_shifted(options, reach):
    images = torch.rand(2, 3, 12, 14)
    assert torch.equal(Preprocessing(**options).second_view()(images), images.flip(3))
    shifting = Preprocessing(**options, horizontal_flip=False).second_view()
    if reach is None:
        assert shifting is None
        return
    padded = torch.nn.functional.pad(images, [reach] * 4, mode="replicate")
    for seed in range(5):
        torch.manual_seed(seed)
        shifted = shifting(images)
        torch.manual_seed(seed)
        top, left = torch.randint(2 * reach + 1, (2,)).tolist()
        assert torch.equal(shifted, padded[..., top : top + 12, left : left + 14])


def test_refusals():
    with refused("`norm_mean` has 1 values and `norm_std` 3; give both 3, or 1 for grey"):
        Preprocessing(mean=(0.5,))
