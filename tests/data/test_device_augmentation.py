from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.data.test_images import domain
from tllib_ancon.data.cache import cached
from tllib_ancon.data.decoding import load_image
from tllib_ancon.data.device_augmentation import device_augmentation
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import LabelledImages, UnlabelledImages
from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.data.sampling import EpochSampler
from tllib_ancon.data.transforms import ImageTransform, TransformOptions, train_transform
from tllib_ancon.errors import UserError

__all__ = ["domain"]
OPTIONS = TransformOptions(
    image_size=28, resize_size=20, scale=(0.3, 1.0), norm_mean=(0.0,) * 3, norm_std=(1 / 255,) * 3
)
LEVELS = 2
"""Of 255: Pillow rounds between its passes over columns and rows and has finer weights than torch."""


def epoch_of(domain: Domain, transform: ImageTransform, workers: int = 0, seed: int = 3, epoch: int = 0) -> Tensor:
    """The images of an epoch as levels, in the domain's order."""
    sampler = EpochSampler(range(len(domain)), len(domain), seed)
    sampler.epoch = epoch
    batches = list(ImageLoader(UnlabelledImages(domain, transform, seed), 5, workers, sampler))
    indices, images = (torch.cat(parts) for parts in zip(*batches, strict=True))
    return images[indices.argsort()]


@pytest.mark.parametrize("resizing", ["default", "cen.crop", "ran.crop", "res."])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"horizontal_flip": False},
        {"scale": (0.08, 1.0)},
        {"padding": 3},
        {"norm_mean": (0.0,), "norm_std": (1 / 255,)},
    ],
    ids=["flip", "no flip", "strong", "padding", "grey"],
)
def test_each_image_is_what_a_worker_would_have_made_of_it(domain: Domain, resizing: str, more: dict[str, Any]) -> None:
    options = replace(OPTIONS, train_resizing=resizing, **more)
    for epoch in (0, 1):
        expected = epoch_of(domain, train_transform(options), epoch=epoch)
        augmented = epoch_of(domain, device_augmentation(options), epoch=epoch)
        assert augmented.dtype == torch.float32
        assert augmented.is_contiguous()
        assert augmented.shape == expected.shape
        assert (augmented - expected).abs().round().max() <= LEVELS


def test_a_rotation_may_take_another_of_two_nearest_pixels(domain: Domain) -> None:
    options = replace(OPTIONS, train_resizing="ran.crop", rotation=30.0)
    difference = epoch_of(domain, device_augmentation(options)) - epoch_of(domain, train_transform(options))
    assert (difference.abs().round() > LEVELS).float().mean() < 0.01


def test_images_of_a_batch_have_their_own_crops(domain: Domain) -> None:
    alike = domain.subset([0] * 12)
    images = epoch_of(alike, device_augmentation(OPTIONS))
    assert len(torch.unique(images, dim=0)) == 12


def test_same_seed_same_tensors_whatever_the_workers(domain: Domain) -> None:
    alone = epoch_of(domain, device_augmentation(OPTIONS))
    for workers in (0, 1, 2):
        assert torch.equal(epoch_of(domain, device_augmentation(OPTIONS), workers), alone)
    assert not torch.equal(epoch_of(domain, device_augmentation(OPTIONS), seed=4), alone)
    assert not torch.equal(epoch_of(domain, device_augmentation(OPTIONS), epoch=1), alone)


def test_the_dataset_alone_gives_the_same_tensors(domain: Domain) -> None:
    images = UnlabelledImages(domain, device_augmentation(OPTIONS), seed=3)
    sampler = EpochSampler(range(12), 12, seed=3)
    alone = torch.stack([images[key][1] for key in sorted(sampler, key=lambda key: key % 12)])
    assert torch.equal(alone, epoch_of(domain, device_augmentation(OPTIONS)))


def test_labels_stay_with_their_images(domain: Domain) -> None:
    loader = ImageLoader(LabelledImages(domain, device_augmentation(OPTIONS)), 4, workers=0)
    assert torch.cat([labels for _, labels in loader]).tolist() == [number % 3 for number in range(12)]


def test_the_global_random_state_is_left_alone(domain: Domain) -> None:
    state = torch.get_rng_state()
    epoch_of(domain, device_augmentation(OPTIONS))
    assert torch.equal(torch.get_rng_state(), state)


def test_workers_hand_over_the_bytes_of_the_cache_as_they_are(tmp_path: Path, domain: Domain) -> None:
    @contextlib.contextmanager
    def no_bar(*_: object):
        yield SimpleNamespace(update=lambda: None)

    transform = device_augmentation(replace(OPTIONS, image_size=21))
    with_cache = cached(domain, tmp_path / "cache", [transform.resizing], 0, no_bar)
    kept = with_cache.caches[transform.resizing].pixels
    assert np.shares_memory(transform.pixels(with_cache.image(4, transform.resizing)), kept)
    assert torch.equal(epoch_of(with_cache, transform), epoch_of(domain, transform))


def test_squares_leave_the_worker_whole(domain: Domain) -> None:
    image = load_image(domain.paths[0])
    assert np.array_equal(device_augmentation(OPTIONS).pixels(image), np.asarray(image))


def test_images_of_many_sizes_are_no_batch() -> None:
    with pytest.raises(UserError, match="`device_augmentation` needs squares"):
        device_augmentation(TransformOptions(train_resizing="keep-ratio"))
