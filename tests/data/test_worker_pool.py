from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch
from torch.utils.data import Dataset

from tests.data.test_images import AUGMENTATION, domain
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import UnlabelledImages
from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.data.transforms import evaluation_transform, train_transform
from tllib_ancon.data.worker_pool import PREFETCHED, Pixels, Reading, WorkerPool, WorkersLost
from tllib_ancon.errors import UserError

__all__ = ["domain"]
SHAPE = (2, 3, 1)


class Numbers(Dataset):
    """Item i is an image of the number i, its seed, and i."""

    def __init__(self, shape: tuple[int, ...] = SHAPE):
        self.shape = shape

    def __len__(self) -> int:
        return 90

    def __getitem__(self, number: int) -> tuple[Pixels, int]:
        return Pixels(torch.full(self.shape, number, dtype=torch.uint8).numpy(), 10 * number), number


class Tensors(Numbers):
    """Item i is a tensor of the number i."""

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.full((2,), number)


def keys(size: int = 4) -> list[list[int]]:
    return [list(range(start, min(start + size, 90))) for start in range(0, 90, size)]


@pytest.fixture
def start_method(request: pytest.FixtureRequest) -> Iterator[None]:
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method(request.param, force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


@pytest.mark.parametrize(
    ("workers", "start_method"), [(1, "fork"), (2, "fork"), (2, "spawn")], indirect=["start_method"]
)
def test_a_batch_stays_until_the_next_one_is_asked_for(workers: int, start_method: None) -> None:
    pool = WorkerPool(workers)
    reading = Reading(Numbers(), 4, list)
    pool.add(reading)
    for epoch in range(2):
        for batch, numbers in pool.batches(reading, keys()):
            if epoch == 0 and numbers[0] == 40:
                break  # an epoch that is left early
            assert batch.seeds == [10 * number for number in numbers]
            time.sleep(0.005)  # the workers run ahead
            assert pool.tensor(batch)[:, 1, 2, 0].tolist() == numbers


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_of_many_kinds_read_through_the_same_workers(workers: int) -> None:
    pool = WorkerPool(workers)
    small, large, tensors = (
        Reading(Numbers(), 4, list),
        Reading(Numbers((5, 4, 3)), 7, list),
        Reading(Tensors(), 3, torch.stack),
    )
    before = loading_processes()
    for reading in (small, large, tensors):
        pool.add(reading)
    for _ in range(2):
        for reading, size in ((small, 4), (large, 7)):
            for batch, numbers in pool.batches(reading, keys(size)):
                assert pool.tensor(batch).shape == (len(numbers), *reading.dataset.shape)
                assert pool.tensor(batch)[:, 0, 0, 0].tolist() == numbers
        assert torch.cat(list(pool.batches(tensors, keys(3))))[:, 1].tolist() == list(range(90))
    if workers:
        assert pool.places.shape == (workers, PREFETCHED + 1, 7 * 5 * 4 * 3)
        assert pool.places.is_shared()
        assert len(loading_processes() - before) == workers


def loading_processes() -> set[BaseProcess]:
    return set(multiprocessing.active_children())


def test_what_is_added_later_is_read_too() -> None:
    pool = WorkerPool(1)
    first, second = Reading(Numbers(), 4, list), Reading(Numbers((9, 9, 3)), 4, list)
    for reading in (first, second):
        pool.add(reading)
        assert [numbers for _, numbers in pool.batches(reading, keys())] == keys()


def test_two_loaders_at_once_are_refused() -> None:
    pool = WorkerPool(1)
    first, second = Reading(Numbers(), 4, list), Reading(Numbers(), 4, list)
    pool.add(first)
    pool.add(second)
    begun = pool.batches(first, keys())
    next(begun)
    next(pool.batches(second, keys()))
    with pytest.raises(RuntimeError, match="two loaders read through the same workers at once"):
        next(begun)


def test_without_workers_two_loaders_may_read_at_once() -> None:
    pool = WorkerPool(0)
    first, second = Reading(Numbers(), 4, list), Reading(Numbers(), 4, list)
    pool.add(first)
    pool.add(second)
    for (one, _), (other, numbers) in zip(pool.batches(first, keys()), pool.batches(second, keys()), strict=True):
        assert pool.tensor(one).unique().tolist() == pool.tensor(other).unique().tolist() == numbers


def test_too_little_shared_memory_is_said_before_a_worker_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("unable to allocate shared memory(shm)")

    monkeypatch.setattr(torch.Tensor, "share_memory_", full)
    pool = WorkerPool(2)
    reading = Reading(Numbers((100, 1000, 1)), 50, list)
    pool.add(reading)
    with pytest.raises(UserError, match=r"2 workers need 30 MB of shared memory .*`workers`"):
        next(pool.batches(reading, keys()))


def test_memory_beyond_any_machine_is_said_in_full() -> None:
    pool = WorkerPool(2)
    reading = Reading(Numbers((32, 32, 1)), 2**52, list)
    pool.add(reading)
    with pytest.raises(UserError, match=r"2 workers need 27,670,116,110,565 MB of shared memory") as error:
        next(pool.batches(reading, keys()))
    assert "\n" not in str(error.value)


def test_a_worker_that_is_killed_is_said_where_its_batch_is_missing(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.2)
    monkeypatch.setattr("torch.utils.data._utils.signal_handling._SIGCHLD_handler_set", False)
    # in place of a handler that an earlier loader of torch left, which would raise
    previous = signal.signal(signal.SIGCHLD, lambda number, frame: None)
    request.addfinalizer(lambda: signal.signal(signal.SIGCHLD, previous))
    handler = signal.getsignal(signal.SIGCHLD)
    pool = WorkerPool(2)
    reading = Reading(Numbers(), 4, list)
    pool.add(reading)
    before = loading_processes()
    batches = pool.batches(reading, keys())
    next(batches)
    assert signal.getsignal(signal.SIGCHLD) is handler
    for worker in loading_processes() - before:
        worker.kill()
    time.sleep(0.2)  # nothing is raised here
    with pytest.raises(WorkersLost, match=r"ended without a word .*pass fewer `workers`") as error:
        list(batches)
    assert isinstance(error.value, UserError)
    assert len(list(pool.batches(reading, keys()))) == len(keys())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_workers_leave_signals_to_their_parent(number: int, capfd: pytest.CaptureFixture) -> None:
    pool = WorkerPool(2)
    reading = Reading(Numbers(), 4, list)
    pool.add(reading)
    before = loading_processes()
    batches = pool.batches(reading, keys())
    next(batches)
    workers = loading_processes() - before
    for worker in workers:
        os.kill(worker.pid, number)
    if number == signal.SIGINT:
        assert len(list(batches)) == len(keys()) - 1
    else:
        for worker in workers:
            worker.join(20)
        assert [worker.exitcode for worker in workers] == [0, 0]
    assert capfd.readouterr().err == ""


ORPHAN = """
import os, signal, sys, time
from torch.utils.data import DataLoader
from tllib_ancon.data.worker_pool import live_as_parent_does

def begin(worker):
    print(os.getpid(), flush=True)
    while os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    live_as_parent_does(worker)

batches = iter(DataLoader([1], num_workers=1, worker_init_fn=begin))
time.sleep(60)
"""


@pytest.mark.timeout(60)
def test_a_worker_that_loses_its_parent_before_it_first_looks_ends(tmp_path: Path) -> None:
    (tmp_path / "parent lives").touch()
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(tmp_path / "parent lives")], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        (tmp_path / "parent lives").unlink()
        try:
            assert parent.stdout.read() == ""  # ends when the worker does, which holds it open too
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)


def test_an_error_of_a_dataset_is_not_taken_for_a_lost_worker() -> None:
    class Failing(Numbers):
        def __getitem__(self, number: int) -> tuple[Pixels, int]:
            if number > 4:
                raise RuntimeError("mine")
            return super().__getitem__(number)

    pool = WorkerPool(1)
    reading = Reading(Failing(), 4, list)
    pool.add(reading)
    with pytest.raises(RuntimeError, match="mine") as error:
        list(pool.batches(reading, keys()))
    assert not isinstance(error.value, WorkersLost)


def test_an_image_that_cannot_be_read_is_named() -> None:
    broken = Domain.of_files("d", ["none.png"] * 3)
    for workers in (0, 1):
        loader = ImageLoader(UnlabelledImages(broken, lambda image: image), 2, workers)
        with pytest.raises(UserError, match=r"image none\.png: file not found"):
            list(loader)


def test_more_keys_than_images(domain: Domain) -> None:
    keys = [*range(12), *range(12)]
    loader = ImageLoader(UnlabelledImages(domain, evaluation_transform(AUGMENTATION)), 20, 1, keys)
    assert [len(indices) for indices, _ in loader] == [20, 4]


def test_a_pool_gives_loaders_the_tensors_of_workers_of_their_own(domain: Domain) -> None:
    pool = WorkerPool(2)
    for make in (train_transform, evaluation_transform):
        images = UnlabelledImages(domain, make(AUGMENTATION), seed=1)
        shared, own = ImageLoader(images, 5, pool), ImageLoader(images, 5, 0)
        for _ in range(2):
            for (indices, batch), (expected, alone) in zip(shared, own, strict=True):
                assert torch.equal(indices, expected)
                assert torch.equal(batch, alone)
