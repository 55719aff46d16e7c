"""An epoch visits each image once in an order of the seed, whatever the workers; a lost worker is one line."""

import multiprocessing
import time
from multiprocessing.process import BaseProcess

import pytest
import torch
from PIL import Image

from tests.data.conftest import epoch_of, finished
from tests.support.refusals import one_line
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import Images
from tllib_ancon.data.loading import EpochSampler, ImageLoader, UnlabelledImages, _item_seed, _seeded, hold_out
from tllib_ancon.data.transforms import Preprocessing, evaluation_transform, train_transform
from tllib_ancon.data.workers import Workers, _WorkersLost, watching_workers
from tllib_ancon.runtime.errors import UserError

pytestmark = pytest.mark.posix

TRANSFORM = train_transform(Preprocessing(image_size=28, scale=(0.3, 1.0)))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_is_what_the_dataset_gives_whatever_the_workers(domain, workers):
    images = UnlabelledImages(domain, TRANSFORM)
    state = torch.get_rng_state()
    sampler = EpochSampler(range(12), 12, seed=0)
    for sampler.epoch in (0, 1):
        keys = list(sampler)[:10]
        indices, batch = epoch_of(domain, TRANSFORM, workers, 0, sampler.epoch, drop_last=True)
        assert indices.tolist() == [key % 12 for key in keys]
        assert torch.equal(batch.cpu(), torch.stack([finished(images, key) for key in keys]))
    assert torch.equal(torch.get_rng_state(), state)


def test_the_order_of_an_epoch_is_what_it_was_and_a_longer_one_repeats_the_images_in_new_orders():
    sampler = EpochSampler(range(6), 6, seed=3, rank=1)
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


def test_a_seed_holds_inside_its_context_alone():
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    with _seeded(3):
        first = torch.rand(1)
    assert torch.equal(torch.rand(2), expected)
    with _seeded(3):
        assert torch.equal(torch.rand(1), first)


@pytest.mark.parametrize(("seed", "number"), [(0, 0xE220A8397B1DCDAF), (1, 0x6E789E6AA1B965F4)])
def test_the_seed_of_an_image_is_the_published_number_of_splitmix64(seed, number):
    """Its upper 63 bits."""
    assert _item_seed(seed, key=0) == number >> 1


@pytest.mark.parametrize(
    ("num_samples", "fraction", "held"),
    [(100, 0.0, 0), (100, 0.1, 10), (100, 0.5, 50), (100, 0.999, 99), (4, 0.1, 1), (2, 1e-9, 1), (1, 0.5, 0)],
)
def test_hold_out_splits_without_overlap(num_samples, fraction, held):
    kept, held_out = hold_out(num_samples, fraction, seed=0)
    assert len(held_out) == held
    assert sorted([*kept.tolist(), *held_out.tolist()]) == list(range(num_samples))
    assert torch.equal(hold_out(num_samples, fraction, seed=0)[1], held_out)


class Numbers(Images):
    """Image i has i everywhere; ``fail`` is what image 40 raises."""

    def __init__(self, fail=None):
        self.fail = fail

    def __len__(self):
        return 90

    def image(self, position):
        if self.fail and position == 40:
            raise self.fail
        return Image.new("RGB", (6, 6), (position,) * 3)


LEVELS = {"mean": (0.0,) * 3, "std": (1 / 255,) * 3}


def numbers(side=6, fail=None):
    options = Preprocessing(val_resizing="res.", resize_size=side, **LEVELS)
    return UnlabelledImages(Domain("numbers", Numbers(fail)), evaluation_transform(options))


def read(loader, pause=0.0):
    """The numbers of the images, which must be what they show."""
    found = []
    for indices, images in loader:
        time.sleep(pause)  # workers run ahead
        for values in (images.amax((1, 2, 3)), images.amin((1, 2, 3))):
            assert values.round().tolist() == indices.tolist()
        found += indices.tolist()
    return found


def loading_processes():
    return set(multiprocessing.active_children())


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_read_through_the_same_workers_and_an_epoch_may_be_left(workers):
    pool = Workers(workers)
    before = loading_processes()

    def as_floats(image):
        number, _, _ = image.getpixel((0, 0))
        return torch.full((3, 2, 2), number)

    floats = UnlabelledImages(Domain("numbers", Numbers()), as_floats)
    sizes = (numbers(), 4), (numbers(11), 7), (floats, 3)
    loaders = [ImageLoader(images, size, pool) for images, size in sizes]
    for _ in range(2):
        assert all(read(loader, pause=0.003) == list(range(90)) for loader in loaders)
        next(iter(loaders[0]))
    assert len(loading_processes() - before) == workers
    later = ImageLoader(numbers(20), 5, pool)
    assert read(later) == read(loaders[0]) == list(range(90))


def test_workers_end_with_their_pass_or_when_they_are_closed(monkeypatch):
    killed = []
    monkeypatch.setattr(BaseProcess, "terminate", lambda self: killed.append(self) or self.kill())
    before = loading_processes()
    assert len(read(ImageLoader(numbers(), 4, 2))) == 90
    assert loading_processes() == before
    workers = Workers(2)
    assert len(read(ImageLoader(numbers(), 4, workers))) == 90
    assert len(loading_processes() - before) == 2
    workers.close()
    assert loading_processes() - before == set()
    assert killed == []


def test_two_loaders_at_once():
    for workers in (0, 1):
        pool = Workers(workers)
        first, second = (ImageLoader(numbers(), 4, pool) for _ in range(2))
        begun = iter(first)
        next(begun)
        next(iter(second))
        if workers == 0:
            assert next(begun)[0].tolist() == [4, 5, 6, 7]
    with pytest.raises(RuntimeError, match="two loaders read through the same workers at once"):
        next(begun)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_image_that_cannot_be_read_is_named_and_other_errors_stay(workers):
    with one_line(r"^mine; pass `skip_corrupt=True` to leave such images out$"):
        read(ImageLoader(numbers(fail=UserError("mine")), 4, workers))
    with pytest.raises(RuntimeError, match="yours") as error:
        read(ImageLoader(numbers(fail=RuntimeError("yours")), 4, workers))
    assert not isinstance(error.value, _WorkersLost)


def test_too_little_shared_memory_is_one_line():
    full = RuntimeError("unable to allocate shared memory(shm) for file: No space left on device (28)")
    with pytest.raises(_WorkersLost, match=r"No space left on device .*make /dev/shm larger.*fewer `workers`") as error:
        read(ImageLoader(numbers(fail=full), 4, 1))
    assert "\n" not in str(error.value)


def test_a_worker_that_is_killed_is_one_line_and_the_next_pass_starts_others():
    before = loading_processes()
    loader = ImageLoader(numbers(), 4, Workers(2))
    batches = iter(loader)
    next(batches)

    def lose_a_worker():
        with watching_workers():
            for worker in loading_processes() - before:
                worker.kill()
            list(batches)

    with pytest.raises(_WorkersLost, match=r"ended without a word .*pass fewer `workers`") as error:
        lose_a_worker()
    assert isinstance(error.value, UserError)
    assert read(loader) == list(range(90))
    loader.workers.close()


def test_workers_lost_after_a_pass_that_was_left_are_one_line_too():
    before = loading_processes()
    loader = ImageLoader(numbers(), 4, Workers(2))
    next(iter(loader))  # the processes have gone ahead, so that their batches wait in the queue
    for worker in loading_processes() - before:
        worker.terminate()
        worker.join()
    with pytest.raises(_WorkersLost, match="ended without a word"):
        read(loader)
    assert read(loader) == list(range(90))
    loader.workers.close()


def test_a_worker_that_is_told_to_end_twice_ends_without_an_error():
    before = loading_processes()
    for _ in range(3):
        loader = ImageLoader(numbers(), 4, Workers(2))
        read(loader)  # until then a process may have its handler of signals still to set
        started = loading_processes() - before
        while any(worker.is_alive() for worker in started):
            for worker in started:
                worker.terminate()
        assert [worker.exitcode for worker in started] == [0, 0]
        loader.workers.close()
