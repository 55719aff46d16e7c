"""Batches of a domain's images: their order, their random numbers, and worker processes that decode them."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, default_collate, get_worker_info

from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import Bytes
from tllib_ancon.data.tensors import Rows
from tllib_ancon.data.transforms import ImageTransform, seeded
from tllib_ancon.errors import UserError, one_line
from tllib_ancon.interruption import SIGNALS
from tllib_ancon.orphan import end_with

PREFETCHED = 2
"""Batches that a worker may be ahead of the one in use."""


class EpochSampler(Sampler[int]):
    """A new random order of these positions each epoch, as keys ``epoch * N + index`` of :class:`DomainImages`, where N
    is the size of the whole domain. A ``length`` of more keys than positions starts further passes, each in a new
    order; processes that visit other images with the same seed differ by ``rank``."""

    RANKS_APART = 2**53  # beyond what seed and epoch reach

    def __init__(self, indices: Sequence[int], num_samples: int, seed: int, length: int | None = None, rank: int = 0):
        self.indices, self.num_samples, self.seed, self.rank = torch.as_tensor(indices), num_samples, seed, rank
        self.length = len(self.indices) if length is None else length
        self.epoch = 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        passes = -(-self.length // max(len(self.indices), 1))
        generator = torch.Generator().manual_seed(self.rank * self.RANKS_APART + self.seed * 1_000_003 + self.epoch)
        remaining = self.length
        for number in range(self.epoch * passes, (self.epoch + 1) * passes):
            order = self.indices[torch.randperm(len(self.indices), generator=generator)][:remaining]
            remaining -= len(order)
            yield from (order + number * self.num_samples).tolist()


def hold_out(num_samples: int, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Split [0, N) at random into (kept, held out) index vectors, both sorted. At least one sample is kept, and unless
    the fraction is 0 at least one of several is held out."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(num_samples, generator=generator)
    held = min(max(round(num_samples * fraction), int(fraction > 0)), num_samples - 1)
    return order[held:].sort().values, order[:held].sort().values


class DomainImages(Dataset[Any]):
    """Images of a domain, each item decided by the seed and its key, ``epoch * N + index`` of :class:`EpochSampler`.

    The transform's random numbers come from (seed, key), so that an epoch has the same tensors whatever the number of
    workers. A domain that :attr:`~tllib_ancon.data.domain.Domain.holds_tensors` skips the transform. Its device part is
    applied to :class:`Pixels` later.
    """

    def __init__(self, domain: Domain, transform: Callable[[Any], Any], seed: int = 0):
        self.domain, self.transform, self.seed = domain, transform, seed

    def __len__(self) -> int:
        return len(self.domain)

    def image(self, key: int) -> Any:
        resizing = getattr(self.transform, "resizing", None)
        image: Any = self.domain.image(key % len(self), resizing)
        if self.domain.holds_tensors and resizing is not None:
            return image
        return self.transformed(image, key)

    def transformed(self, image: Any, key: int) -> Any:
        with seeded(item_seed(self.seed, key)):
            if isinstance(self.transform, ImageTransform):
                return Pixels(self.transform.pixels(image), torch.initial_seed())
            return self.transform(image)


class UnlabelledImages(DomainImages):
    """Items (index, image): what adaptation may see."""

    def __getitem__(self, key: int) -> tuple[int, Any]:
        return key % len(self), self.image(key)

    def batch(self, keys: Sequence[int]) -> list[Tensor] | None:
        """The batch of these keys read at once, where images are rows of an array that no transform changes."""
        if not (isinstance(self.domain.images, Rows) and isinstance(self.transform, nn.Identity)):
            return None
        indices = torch.as_tensor(keys) % len(self)
        return [indices, self.domain.images.at(self.domain.positions[indices.numpy()])]


class LabelledImages(DomainImages):
    """Items (image, label): a source domain, or a target domain under evaluation."""

    def __init__(self, domain: Domain, transform: Callable[[Any], Any], seed: int):
        if domain.labels is None:
            raise UserError(f"domain {domain.name}: its images have no labels, and a source domain needs them")
        super().__init__(domain, transform, seed)
        self.labels = domain.labels

    def __getitem__(self, key: int) -> tuple[Any, int]:
        return self.image(key), int(self.labels[key % len(self)])


class Pixels(NamedTuple):
    """Input of :meth:`~tllib_ancon.data.transforms.ImageTransform.finish`: bytes (H, W, C) and the seed of the random
    numbers."""

    values: Bytes
    seed: int


def item_seed(seed: int, key: int) -> int:
    """A well-mixed 63-bit number from a seed and a key (the finaliser of SplitMix64)."""
    mask = (1 << 64) - 1
    value = (seed * 0x9E3779B97F4A7C15 + key + 0x9E3779B97F4A7C15) & mask
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return (value ^ (value >> 31)) >> 1


class ImageLoader:
    """Batches of a :class:`DomainImages`, with its images on the GPU where there is one.

    Where the transform is an :class:`~tllib_ancon.data.transforms.ImageTransform`, workers hand over bytes, a quarter
    of the floats, and a batch is finished on the device. Loaders that are read one after the other may share a pool of
    workers, which outlive an epoch. Nothing is drawn from the global random state.
    """

    def __init__(
        self,
        dataset: DomainImages,
        batch_size: int,
        workers: int | WorkerPool,
        sampler: Sequence[int] | EpochSampler | None = None,
        drop_last: bool = False,
    ):
        self.dataset, self.batch_size = dataset, batch_size
        self.sampler = range(len(dataset)) if sampler is None else sampler
        self.batches = BatchSampler(self.sampler, batch_size, drop_last)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.pool = workers if isinstance(workers, WorkerPool) else WorkerPool(workers)
        self.number = self.pool.add(dataset)

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def num_images(self) -> int:
        return min(len(self.sampler), len(self) * self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        for batch in self.pool.batches(self.number, self.batches):
            yield tuple(map(self._finish, batch))

    def _finish(self, part: Any) -> Tensor:
        if isinstance(part, Tensor):
            return part.to(self.device, non_blocking=True) if part.is_floating_point() else part
        pixels, seeds = part
        assert isinstance(self.dataset.transform, ImageTransform)
        return self.dataset.transform.finish(pixels.to(self.device, non_blocking=True), seeds)


class WorkersLost(UserError, RuntimeError):
    """A process that loads images ended without being asked to."""


class WorkerPool:
    """Processes that load the batches of any number of loaders, one loader at a time; with none, this process loads.

    A data loader of torch starts processes of its own, so that a training loop with four loaders would have four times
    the workers. This process handles signals such as Ctrl-C; workers wait or end quietly. A lost worker shows when its
    batch is missing.
    """

    def __init__(self, workers: int):
        self.workers = workers
        self.datasets: list[Dataset[Any]] = []
        self.asked: Iterator[tuple[int, list[int]]] = iter(())  # number of a dataset and the keys of each batch
        self._loader: list[DataLoader[Any]] = []  # none or one
        # in a reference cycle, the garbage collector would close the queues before the workers can be asked to end
        weakref.finalize(self, self._loader.clear)
        self._mapped: dict[int, Any] = {}  # memory in which workers laid batches; else mapped again for each

    def add(self, dataset: Dataset[Any]) -> int:
        """Register what will be read, and tell its number; workers that run already are started again."""
        self.datasets.append(dataset)
        self._loader.clear()
        self._mapped.clear()
        return len(self.datasets) - 1

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        """What the workers are to load now, as a sampler."""
        return self.asked

    def batches(self, number: int, keys: Iterable[list[int]]) -> Iterator[Any]:
        self.asked = mine = ((number, batch) for batch in keys)
        if self.workers == 0:
            yield from map(_Batches(self.datasets).__getitem__, mine)
            return
        if not self._loader:
            self._loader.append(self._start())
        try:
            for batch in _running(self._loader[0]):
                if self.asked is not mine:
                    raise RuntimeError("two loaders read through the same workers at once; give each its own")
                for part in batch:
                    if isinstance(part, list | tuple) and getattr(part[0], "is_shared", bool)():
                        storage = part[0].untyped_storage()
                        self._mapped[storage.data_ptr()] = storage
                yield batch
        except WorkersLost:
            self._loader.clear()
            raise

    def _start(self) -> DataLoader[Any]:
        return DataLoader(
            _Batches(self.datasets),
            batch_size=None,
            sampler=weakref.proxy(self),
            num_workers=self.workers,
            worker_init_fn=live_as_parent_does,
            prefetch_factor=PREFETCHED,
            persistent_workers=True,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),
        )


class _Batches(Dataset[Any]):
    """Item (n, keys) is the batch of these keys of dataset n. A worker lays images in shared memory that it fills again
    and again: in that of torch, new for every batch, the pages cost more than the bytes that fill them."""

    def __init__(self, datasets: Sequence[Dataset[Any]]):
        self.datasets = datasets
        self.places = [torch.empty(0, dtype=torch.uint8)] * (PREFETCHED + 1)  # ahead, and the one in use

    def __getitem__(self, asked: tuple[int, list[int]]) -> Any:
        number, keys = asked
        dataset = self.datasets[number]
        if isinstance(dataset, UnlabelledImages) and (batch := dataset.batch(keys)) is not None:
            return batch
        columns = map(list, zip(*(dataset[key] for key in keys), strict=True))
        return [self._laid(column) if isinstance(column[0], Pixels) else default_collate(column) for column in columns]

    def _laid(self, images: Sequence[Pixels]) -> tuple[Tensor, list[int]]:
        values = [torch.from_numpy(image.values) for image in images]
        seeds = [image.seed for image in images]
        if get_worker_info() is None:
            return torch.stack(values), seeds
        place, size = self.places.pop(0), len(values) * values[0].numel()
        if len(place) < size:
            place = torch.empty(size, dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]
        self.places.append(place)
        return torch.stack(values, out=place[:size].view(len(values), *values[0].shape)), seeds


def _running(loader: DataLoader[Any]) -> Iterator[Any]:
    """The batches of a loader whose workers follow it by :func:`live_as_parent_does`; the loss of one shows within five
    seconds."""
    try:
        yield from _without_sigchld(loader)
    except (RuntimeError, EOFError, OSError) as error:  # OSError: of the socket by which a worker hands memory over
        text = str(error)
        lost = text.startswith("DataLoader worker (pid") or "shared memory" in text or "resize file" in text
        if not lost and (isinstance(error, RuntimeError) or "in DataLoader worker process" in text):
            raise
        reason = one_line(text.rpartition("RuntimeError: ")[2]) or type(error).__name__
        reason += "; in a container make /dev/shm larger" * ("shared memory" in text)
        raise WorkersLost(
            f"a process that loads images ended without a word ({reason}); where memory is short, pass fewer `workers` "
            "or a smaller `batch_size`"
        ) from error


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
    """Let a worker ignore SIGINT, end quietly at SIGTERM, and end with its parent. A worker of torch waits for ever if
    its parent ended before its first look."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    parent = multiprocessing.parent_process()
    if parent is not None:
        end_with(parent.pid, every=1.0)
