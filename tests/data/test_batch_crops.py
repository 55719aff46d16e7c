from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchvision.transforms.v2 import functional as F

from tllib_ancon.data.batch_crops import Geometry, crop_batch, draw_geometry
from tllib_ancon.data.device_augmentation import DeviceAugmentation, device_augmentation
from tllib_ancon.data.transforms import TransformOptions

SIDE, SIZE = 32, 28
OPTIONS = TransformOptions(
    image_size=SIZE, resize_size=20, scale=(0.3, 1.0), norm_mean=(0.0,) * 3, norm_std=(1 / 255,) * 3
)
LEVELS = 2


@st.composite
def geometries(draw: st.DrawFn) -> Geometry:
    height, width = draw(st.integers(1, SIDE)), draw(st.integers(1, SIDE))
    top, left = draw(st.integers(0, SIDE - height)), draw(st.integers(0, SIDE - width))
    return Geometry(top, left, height, width, draw(st.integers(-5, 5)), draw(st.integers(-5, 5)), draw(st.booleans()))


def one_by_one(square: Tensor, geometry: Geometry, size: int) -> Tensor:
    top, left, height, width, down, right, flip = geometry
    resized = F.resized_crop(square, top, left, height, width, [size, size], antialias=True)
    room = 5
    shifted = F.crop(F.pad(resized, [room]), down + room, right + room, size, size)
    return F.horizontal_flip(shifted) if flip else shifted


@given(st.lists(geometries(), min_size=1, max_size=4), st.sampled_from([1, 7, SIZE, 40]), st.integers(0, 99))
@settings(deadline=None)
def test_it_is_torchvisions_kernels_one_by_one(drawn: list[Geometry], size: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    squares = torch.randint(256, (len(drawn), 3, SIDE, SIDE), generator=generator, dtype=torch.uint8)
    expected = torch.stack(
        [one_by_one(square, geometry, size) for square, geometry in zip(squares, drawn, strict=True)]
    )
    cropped = crop_batch(squares, drawn, size)
    assert (cropped.dtype, cropped.shape) == (torch.uint8, expected.shape)
    assert (cropped.int() - expected.int()).abs().max() <= LEVELS


@given(geometries())
@settings(deadline=None)
def test_a_crop_that_is_not_resized_is_exact(drawn: Geometry) -> None:
    drawn = drawn._replace(top=2, left=3, height=SIZE, width=SIZE)
    squares = torch.randint(256, (1, 3, SIDE, SIDE), dtype=torch.uint8)
    assert torch.equal(crop_batch(squares, [drawn], SIZE)[0], one_by_one(squares[0], drawn, SIZE))


@pytest.mark.parametrize("resizing", ["default", "cen.crop", "ran.crop", "res."])
@pytest.mark.parametrize(
    "more", [{}, {"horizontal_flip": False}, {"padding": 3}, {"norm_mean": (0.0,), "norm_std": (1 / 255,)}]
)
def test_a_batch_is_what_its_images_are_one_by_one(resizing: str, more: dict[str, Any]) -> None:
    transform = device_augmentation(replace(OPTIONS, train_resizing=resizing, **more))
    side = transform.resizing.side
    pixels = torch.randint(256, (12, side, side, 3), dtype=torch.uint8)
    for first in (0, 100):
        seeds = range(first, first + 12)
        expected, batch = (replace(transform, at_once=way).finish(pixels, seeds) for way in (False, True))
        assert batch.shape == expected.shape
        assert batch.is_contiguous()
        assert (batch - expected).abs().round().max() <= LEVELS
        assert resizing == "default" or torch.equal(batch, expected)


def test_a_rotation_is_left_to_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    transform = replace(device_augmentation(replace(OPTIONS, rotation=10.0)), at_once=True)
    assert draw_geometry(transform.crop.transforms, SIDE) is None
    pixels = torch.randint(256, (3, SIDE, SIDE, 3), dtype=torch.uint8)
    assert torch.equal(transform.finish(pixels, [1, 2, 3]), replace(transform, at_once=False).finish(pixels, [1, 2, 3]))


def test_a_cpu_takes_the_kernels_and_a_gpu_the_products(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(DeviceAugmentation, "_geometries", lambda *_: calls.append("products"))
    pixels = torch.randint(256, (2, SIDE, SIDE, 3), dtype=torch.uint8)
    device_augmentation(OPTIONS).finish(pixels, [1, 2])
    assert not calls
    replace(device_augmentation(OPTIONS), at_once=True).finish(pixels, [1, 2])
    assert calls == ["products"]


def test_the_global_random_state_is_left_alone() -> None:
    state = torch.get_rng_state()
    pixels = torch.randint(256, (2, SIDE, SIDE, 3), dtype=torch.uint8, generator=torch.Generator())
    replace(device_augmentation(OPTIONS), at_once=True).finish(pixels, [1, 2])
    assert torch.equal(torch.get_rng_state(), state)


def test_mixed_precision_of_the_network_does_not_reach_pictures() -> None:
    squares = torch.randint(256, (2, 3, SIDE, SIDE), dtype=torch.uint8)
    drawn = [Geometry(1, 2, 20, 30)] * 2
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(crop_batch(squares, drawn, SIZE), crop_batch(squares, drawn, SIZE))
        inside = crop_batch(squares, drawn, SIZE)
    assert torch.equal(inside, crop_batch(squares, drawn, SIZE))
