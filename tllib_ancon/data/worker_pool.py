"""Processes that load images for several loaders, and hand over bytes in memory that they share with this one."""

from __future__ import annotations

import math
import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from tllib_ancon.errors import UserError, megabytes, one_line
from tllib_ancon.orphan import end_with

PREFETCHED = 2
"""Batches that a worker may be ahead of the one in use."""

LOOK_FOR_PARENT_EVERY = 1.0
"""Seconds."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Pixels(NamedTuple):
    """An image as bytes (H, W, C), and the seed of its random numbers."""

    values: NDArray[np.uint8]
    seed: int


class PixelBatch(NamedTuple):
    """The bytes of a batch: an array (B, H, W, C), or where they lie, which is the number of a worker's place and their
    shape; and the B seeds."""

    values: NDArray[np.uint8] | tuple[tuple[int, int], tuple[int, ...]]
    seeds: list[int]


@dataclass(eq=False)
class Reading:
    """What one loader reads through a pool.

    Attributes:
        dataset: key -> item
        batch_size: B, the most items of a batch
        collate: B items without images as :class:`Pixels` -> batch
        pinned: lay its tensors in memory that a GPU copies from by itself
    """

    dataset: Dataset[Any]
    batch_size: int
    collate: Callable[[list[Any]], Any]
    pinned: bool = False


class WorkersLost(UserError, RuntimeError):
    """A process that loads images ended without being asked to."""

    def __init__(self, reason: str):
        super().__init__(
            f"a process that loads images ended without a word ({reason}); where memory is short, pass fewer `workers` "
            "or a smaller `batch_size`"
        )


class WorkerPool:
    """Processes that load the batches of any number of loaders, one loader at a time.

    A data loader of torch starts processes of its own, so that a training loop with four loaders has four times the
    workers; and it maps new memory for every batch, whose pages cost more than the bytes that fill them. Here a worker
    has ``PREFETCHED`` + 1 places and fills one after the other: what it is ahead, and the one in use.

    A signal to all processes, as of Ctrl-C or a batch system, is this process's to handle: workers wait or end quietly,
    and that one was lost is found where its batch is missing.

    Args:
        workers: how many; with none, this process loads

    Raises:
        UserError: a negative number
    """

    def __init__(self, workers: int):
        if workers < 0:
            raise UserError(f"`workers` must be at least 0, got {workers}")
        self.workers = workers
        self.readings: list[Reading] = []
        self.places: Tensor | None = None
        self._loader: DataLoader[Any] | None = None
        self._feed = _Feed()

    def add(self, reading: Reading) -> None:
        """Register what will be read; workers that run already are started anew."""
        self.readings.append(reading)
        self._loader = None

    def batches(self, reading: Reading, keys: Iterable[list[int]]) -> Iterator[Any]:
        """The batches of these keys. The bytes of one stay until the next is asked for.

        Raises:
            UserError: an image that cannot be read; too little shared memory for the workers (how much is needed)
            WorkersLost: a worker was killed
            RuntimeError: another loader began to read before this one ended
        """
        number = self.readings.index(reading)
        if self.workers == 0:
            alone = _Readings(self.readings, None)
            yield from (alone[number, batch] for batch in keys)
            return
        if self._loader is None:
            self._start()
        self._feed.batches = mine = ((number, batch) for batch in keys)
        for batch in self._running():
            if self._feed.batches is not mine:
                raise RuntimeError("two loaders read through the same workers at once; give each workers of its own")
            yield batch

    def _running(self) -> Iterator[Any]:
        assert self._loader is not None
        try:
            yield from started(self._loader)
        except WorkersLost:
            self._loader = None
            raise

    def tensor(self, batch: PixelBatch) -> Tensor:
        """The bytes of a batch, (B, H, W, C) uint8; they stay until the next batch is asked for."""
        if not isinstance(batch.values, tuple):
            return torch.from_numpy(batch.values)
        place, shape = batch.values
        assert self.places is not None
        return _laid(self.places[place], shape)

    def _start(self) -> None:
        self._reserve()
        self._loader = DataLoader(
            _Readings(self.readings, self.places),
            batch_size=None,
            sampler=self._feed,
            collate_fn=_as_it_is,
            num_workers=self.workers,
            worker_init_fn=live_as_parent_does,
            prefetch_factor=PREFETCHED,
            persistent_workers=True,
            pin_memory=any(reading.pinned for reading in self.readings),
            generator=torch.Generator(),
        )

    def _reserve(self) -> None:
        sizes = (self.workers, PREFETCHED + 1, max(map(_bytes_of_a_batch, self.readings)))
        try:
            self.places = torch.empty(sizes, dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            raise UserError(
                f"{self.workers} workers need {megabytes(math.prod(sizes))} of shared memory ({one_line(error)}); "
                "pass fewer `workers` or a smaller `batch_size`, and in a container make /dev/shm larger"
            ) from error


def started(loader: DataLoader[Any]) -> Iterator[Any]:
    """The batches of a loader, whose workers follow it by :func:`live_as_parent_does`.

    Raises:
        WorkersLost: a worker was killed; within five seconds
    """
    try:
        yield from _without_sigchld(loader)
    except RuntimeError as error:
        if not str(error).startswith("DataLoader worker (pid"):
            raise
        raise WorkersLost(one_line(error)) from error


def _without_sigchld(loader: DataLoader[Any]) -> Iterator[Any]:
    """Iterate without torch's handler of SIGCHLD, which raises wherever this process is when a worker ends. A signal
    that comes while workers start waits until they are ready for it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        return iter(loader)
    before = signal.getsignal(signal.SIGCHLD)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        return iter(loader)
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCHLD, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def live_as_parent_does(worker: int) -> None:
    """Let a worker wait at SIGINT, end quietly at SIGTERM, and end when its parent does.

    torch's workers look for their parent too, but one that had already lost it when it first looked waits for ever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    parent = multiprocessing.parent_process()
    if parent is not None:
        end_with(parent.pid, LOOK_FOR_PARENT_EVERY)


class _Feed:
    """What the workers are to load now, as a sampler."""

    batches: Iterator[tuple[int, list[int]]] = iter(())

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        return self.batches


@dataclass
class _Readings(Dataset[Any]):
    """Item (n, keys) is the batch of these keys of reading n; in a worker, its bytes lie in the worker's next place."""

    readings: list[Reading]
    places: Tensor | None
    filled: int = field(default=0, init=False)

    def __getitem__(self, asked: tuple[int, list[int]]) -> Any:
        number, keys = asked
        reading = self.readings[number]
        items = [reading.dataset[key] for key in keys]
        if not any(isinstance(part, Pixels) for part in items[0]):
            return reading.collate(items)
        columns = zip(*items, strict=True)
        return tuple(self._lay(column) if isinstance(column[0], Pixels) else list(column) for column in columns)

    def _lay(self, images: Sequence[Pixels]) -> PixelBatch:
        values, seeds = [image.values for image in images], [image.seed for image in images]
        worker = get_worker_info()
        if worker is None or self.places is None:
            return PixelBatch(np.stack(values), seeds)
        place, shape = (worker.id, self.filled % (PREFETCHED + 1)), (len(values), *values[0].shape)
        self.filled += 1
        np.stack(values, out=_laid(self.places[place], shape).numpy())
        return PixelBatch((place, shape), seeds)


def _laid(place: Tensor, shape: tuple[int, ...]) -> Tensor:
    return place[: int(np.prod(shape))].view(shape)


def _bytes_of_a_batch(reading: Reading) -> int:
    first = [part.values.nbytes for part in reading.dataset[0] if isinstance(part, Pixels)]
    return reading.batch_size * sum(first)


def _as_it_is(batch: Any) -> Any:
    return batch
