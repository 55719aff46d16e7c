"""An epoch visits each image once in an order of the seed, whatever the workers."""

import pytest
import torch

from tests.unit.data.conftest import epoch_of, finished
from tllib_ancon.data.loading import EpochSampler, UnlabelledImages, hold_out
from tllib_ancon.data.transforms import Preprocessing

TRANSFORM = Preprocessing(image_size=28, scale=(0.3, 1.0)).for_training()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_is_what_the_dataset_gives_whatever_the_workers(domain, workers):
    images = UnlabelledImages(domain, TRANSFORM)
    state = torch.get_rng_state()
    sampler = EpochSampler(range(12), 12, seed=0, length=12)
    for sampler.epoch in (0, 1):
        keys = list(sampler)[:10]
        indices, batch = epoch_of(domain, TRANSFORM, workers, 0, sampler.epoch, drop_last=True)
        assert indices.tolist() == [key % 12 for key in keys]
        assert torch.equal(batch.cpu(), torch.stack([finished(images, key) for key in keys]))
    assert torch.equal(torch.get_rng_state(), state)


def test_the_order_of_an_epoch_is_what_it_was_and_a_longer_one_repeats_the_images_in_new_orders():
    sampler = EpochSampler(range(6), 6, seed=3, length=6, rank=1)
    sampler.epoch = 2
    assert list(sampler) == [12, 16, 17, 14, 13, 15]
    sampler = EpochSampler(range(5), 5, seed=0, length=12)
    keys = list(sampler)
    assert len(keys) == len(set(keys)) == 12
    for start in (0, 5):
        images = [key % 5 for key in keys[start : start + 5]]
        assert sorted(images) == list(range(5))
    sampler.epoch = 1
    assert not set(keys) & set(sampler)


@pytest.mark.parametrize(
    ("num_samples", "fraction", "held"),
    [(100, 0.0, 0), (100, 0.1, 10), (100, 0.999, 99), (2, 1e-9, 1), (1, 0.5, 0)],
)
def test_hold_out_splits_without_overlap(num_samples, fraction, held):
    kept, held_out = hold_out(num_samples, fraction, seed=0)
    assert len(held_out) == held
    assert sorted([*kept.tolist(), *held_out.tolist()]) == list(range(num_samples))
