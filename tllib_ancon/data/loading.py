"""Batches of a domain's images: their order, their random numbers, and worker processes that decode them."""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, default_collate

from tllib_ancon.data.batches import Batch, to_device
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.tensors import Mapped, Rows
from tllib_ancon.data.transforms import ImageTransform, Transform, seeded
from tllib_ancon.runtime.errors import UserError, one_line

KILLED = "DataLoader worker (pid"
"""How PyTorch's message about a worker that was killed starts."""
PINNING_ENDED = "Pin memory thread exited unexpectedly"
"""How PyTorch's message starts where an error ended its thread that pins batches."""


class EpochSampler(Sampler[int]):
    """A new random order of these positions each epoch, as keys ``epoch * N + index`` of N images in all. A
    ``length`` of more keys than positions starts further passes, each in a new order; processes that visit other images
    with the same seed differ by ``rank``."""

    RANKS_APART = 2**53  # beyond what seed and epoch reach

    def __init__(self, indices: Sequence[int], num_samples: int, seed: int, length: int | None = None, rank: int = 0):
        self.indices = torch.as_tensor(indices)
        self.num_samples = num_samples
        self.seed = seed
        self.rank = rank
        self.length = len(self.indices) if length is None else length
        self.epoch = 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        passes = math.ceil(self.length / max(len(self.indices), 1))
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


class _DomainImages(Dataset[Any]):
    """Dataset of a domain's images. The seed and the key of an item determine it.

    A key is ``epoch * N + index``, as :class:`EpochSampler` gives them.

    The transform's random numbers come from (seed, key), so that an epoch has the same tensors for any number of
    workers. A domain that :attr:`~tllib_ancon.data.domain.Domain.holds_tensors` skips an :class:`ImageTransform`.
    """

    def __init__(self, domain: Domain, transform: Transform, seed: int = 0):
        self.domain = domain
        self.transform = transform
        self.seed = seed

    def __len__(self) -> int:
        return len(self.domain)

    def image(self, key: int) -> Any:
        """The image of a key; of an :class:`ImageTransform` its pixels (H, W, C) uint8, which :meth:`finish` takes."""
        if not isinstance(self.transform, ImageTransform):
            return self.transformed(self.domain.image(key % len(self)), key)
        image = self.domain.image(key % len(self), self.transform.resizing)
        if self.domain.holds_tensors:
            return image
        return self.transformed(image, key)

    def transformed(self, image: Any, key: int) -> Any:
        with seeded(_item_seed(self.seed, key)):
            if isinstance(self.transform, ImageTransform):
                return torch.from_numpy(self.transform.pixels(image))
            where = f"domain {self.domain.name}, item {key % len(self)}"
            try:
                item = self.transform(image)
            except Exception as error:  # of the user's own transform
                raise UserError(
                    f"{where}: the transform raises {type(error).__name__} ({one_line(error)}); repair it"
                ) from error
            return _as_input(item, where)

    def batch(self, keys: Sequence[int]) -> Any:
        """The items of these keys as one batch."""
        items = [self[key] for key in keys]
        try:
            return default_collate(items)
        except (RuntimeError, TypeError) as error:  # of what the user's own transform returns
            raise UserError(
                f"domain {self.domain.name}: the transform must return tensors (C, H, W) of one size, such as by "
                f"Resize((224, 224)) and ToTensor() ({one_line(error)})"
            ) from error

    def finish(self, images: Batch, device: torch.device) -> Any:
        """Images of a batch on the device, normalised there where workers give pixels."""
        moved = to_device(images, device)
        if isinstance(self.transform, ImageTransform) and isinstance(moved, Tensor) and moved.dtype == torch.uint8:
            return self.transform.normalized(moved)
        return moved


class UnlabelledImages(_DomainImages):
    """Items (index, image): what adaptation may see."""

    def __getitem__(self, key: int) -> tuple[int, Any]:
        return key % len(self), self.image(key)

    def batch(self, keys: Sequence[int]) -> list[Any]:
        """Rows of arrays that no transform changes are read at once."""
        if isinstance(self.domain.images, Rows | Mapped) and isinstance(self.transform, nn.Identity):
            indices = torch.as_tensor(keys) % len(self)
            return [indices, self.domain.images.at(self.domain.positions[indices.numpy()])]
        collated: list[Any] = super().batch(keys)
        return collated

    def on_device(self, batch: Sequence[Any], device: torch.device) -> tuple[Tensor, Any]:
        """Indices on the CPU and images on the device."""
        indices, images = batch
        return indices, self.finish(images, device)


class LabelledImages(_DomainImages):
    """Items (image, label): a source domain, or a target domain under evaluation."""

    def __init__(self, domain: Domain, transform: Transform, seed: int):
        if domain.labels is None:
            raise UserError(
                f"domain {domain.name}: its images have no labels, and a source domain needs them; name another as "
                "`source`"
            )
        super().__init__(domain, transform, seed)
        self.labels = domain.labels

    def __getitem__(self, key: int) -> tuple[Any, int]:
        return self.image(key), int(self.labels[key % len(self)])

    def on_device(self, batch: Sequence[Any], device: torch.device) -> tuple[Any, Tensor]:
        """Images on the device and labels on the CPU."""
        images, labels = batch
        return self.finish(images, device), labels


def _as_input(item: Any, where: str) -> Any:
    """What a transform returns, floats as float32; a network's own type follows later."""
    if isinstance(item, tuple | list):
        kind = type(item).__name__
        raise UserError(f"{where}: the transform returns a {kind}; it must return the tensor (C, H, W) alone")
    if isinstance(item, np.ndarray):
        return _as_input(torch.from_numpy(np.array(item)), where)
    if isinstance(item, Tensor) and item.is_floating_point():
        return item.float()
    return item


def _item_seed(seed: int, key: int) -> int:
    """A well-mixed 63-bit number from a seed and a key (the finaliser of SplitMix64)."""
    mask = (1 << 64) - 1
    value = (seed * 0x9E3779B97F4A7C15 + key + 0x9E3779B97F4A7C15) & mask
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return (value ^ (value >> 31)) >> 1


class ImageLoader:
    """Batches of :class:`UnlabelledImages` or :class:`LabelledImages`, with the images on the ``device``,
    by default the GPU where there is one.

    Workers of a number belong to one pass. Loaders that are read one after the other may share :class:`Workers`, which
    outlive an epoch. Nothing is drawn from the global random state.
    """

    def __init__(
        self,
        dataset: UnlabelledImages | LabelledImages,
        batch_size: int,
        workers: int | Workers,
        sampler: Sequence[int] | EpochSampler | None = None,
        drop_last: bool = False,
        device: torch.device | None = None,
    ):
        self.dataset = dataset
        self.batch_size = batch_size
        self.sampler: Any = range(len(dataset)) if sampler is None else sampler
        self.batches = BatchSampler(self.sampler, batch_size, drop_last)
        self.device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.workers = workers if isinstance(workers, Workers) else Workers(workers, persistent=False)
        self.workers.add(dataset)

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def num_images(self) -> int:
        return min(len(self.sampler), len(self) * self.batch_size)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for batch in self.workers.batches(self.dataset, self.batches):
            yield self.dataset.on_device(batch, self.device)


class _WorkersLost(UserError, RuntimeError):
    """A process that loads images ended without being asked to."""

    def __init__(self, reason: str):
        script = ""
        if multiprocessing.get_start_method() != "fork":
            script = "in a script, call it under if __name__ == '__main__', or pass `workers=0`; "
        super().__init__(
            f"a process that loads images ended without a word ({reason}); {script}where memory is short, pass fewer "
            "`workers` or a smaller `batch_size`"
        )


@contextmanager
def watching_workers() -> Iterator[None]:
    """In this context a killed worker is one line, in whichever statement PyTorch's handler of SIGCHLD raises."""
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith(KILLED):
            raise
        raise _WorkersLost(one_line(str(error))) from error


class Workers:
    """Processes that load batches for any number of loaders, one loader at a time, until :meth:`close`.

    A data loader of torch starts processes of its own, so that a training loop with four loaders would have four times
    as many.

    Args:
        count: number of processes; with 0 this process loads, as it does in a worker of :class:`multiprocessing.Pool`,
            which may start none
        persistent: whether they outlive a pass. Default: True
    """

    def __init__(self, count: int, persistent: bool = True):
        self.count = count
        if multiprocessing.current_process().daemon:
            self.count = 0
        self.persistent = persistent
        self.datasets: list[_DomainImages] = []
        self.requests = _Requests()
        self._loader: DataLoader[Any] | None = None

    def add(self, dataset: _DomainImages) -> None:
        """Register what will be read; processes that run already are started again."""
        self.datasets.append(dataset)
        self.close()

    def batches(self, dataset: _DomainImages, keys_of_batches: Iterable[list[int]]) -> Iterator[Any]:
        if self.count == 0:
            yield from map(dataset.batch, keys_of_batches)
            return
        number = self.datasets.index(dataset)
        requests = ((number, keys) for keys in keys_of_batches)
        self.requests.current = requests
        if self._loader is None:
            self._loader = DataLoader(
                _BatchesOfDatasets(self.datasets),
                batch_size=None,
                sampler=self.requests,
                num_workers=self.count,
                worker_init_fn=_leave_signals_to_the_parent,
                persistent_workers=self.persistent,
                pin_memory=torch.cuda.is_available(),
                generator=torch.Generator(),
            )
        try:
            for batch in _batches_of(self._loader):
                if self.requests.current is not requests:
                    raise RuntimeError("two loaders read through the same workers at once; give each its own")
                if isinstance(batch, UserError):
                    raise batch
                yield batch
        except _WorkersLost:
            self.close()
            raise

    def close(self) -> None:
        """End the processes; the next pass starts them again."""
        self._loader = None


class _Requests:
    """What the processes are to load now, as a sampler: the number of a dataset and the keys of each batch."""

    current: Iterator[tuple[int, list[int]]] = iter(())

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        return self.current


class _BatchesOfDatasets(Dataset[Any]):
    """Item (n, keys) is the batch of these keys of dataset n, or the error of bad input.

    An error that a worker raises gets the text of its traceback as its message.
    """

    def __init__(self, datasets: Sequence[_DomainImages]):
        self.datasets = datasets

    def __getitem__(self, request: tuple[int, list[int]]) -> Any:
        number, keys = request
        try:
            return self.datasets[number].batch(keys)
        except UserError as error:
            return error


def _batches_of(loader: DataLoader[Any]) -> Iterator[Any]:
    """The batches of a loader; a lost worker is one line, also where a pass that was left early has batches waiting."""
    batches: Any = loader._iterator  # of the last pass, which PyTorch empties first
    try:
        with _naming_what_cannot_be_sent():
            batches = iter(loader)
        _leave_errors_of_pinning_to_this_thread(batches)
        yield from batches
    except (RuntimeError, EOFError, OSError) as error:  # OSError: of the socket by which a worker hands memory over
        reason = _loss_of_a_worker(_error_of_pinning(batches, error))
        if reason is None:
            raise
        if batches is not None:
            _end(batches)
        raise _WorkersLost(reason) from error


@contextmanager
def _naming_what_cannot_be_sent() -> Iterator[None]:
    """In this context a dataset or a transform that cannot be pickled is one line. Processes get it pickled where they
    do not begin as copies of this one: on macOS, on Windows, and by Python 3.14."""
    try:
        yield
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        if "pickle" not in str(error):
            raise
        raise UserError(
            f"the dataset or the transform cannot be sent to the processes that load images ({one_line(error)}); "
            "define it at the top level of a module, or pass `workers=0`"
        ) from error


def _end(batches: Any) -> None:
    """End the processes of a loader's iterator now: the traceback of an error keeps the iterator, and with it PyTorch's
    watch over its processes. At the death of the next one PyTorch would raise in the middle of any statement."""
    with suppress(RuntimeError):  # that of a process that dies meanwhile
        batches._shutdown_workers()


def _leave_errors_of_pinning_to_this_thread(batches: Any) -> None:
    """With a GPU a thread of PyTorch pins the batches. Where it meets a lost worker first, it would print a traceback,
    and this thread would not learn the reason."""
    thread = getattr(batches, "_pin_memory_thread", None)
    if thread is not None:
        thread._invoke_excepthook = _store_error


def _store_error(thread: Any) -> None:
    thread.error = sys.exc_info()[1]


def _error_of_pinning(batches: Any, error: Exception) -> Exception:
    """The error that ended the thread that pins batches, if this one says that something did; else this one."""
    if not str(error).startswith(PINNING_ENDED):
        return error
    return getattr(batches._pin_memory_thread, "error", error)


def _loss_of_a_worker(error: Exception) -> str | None:
    """Why a worker was lost, if this error tells that one was; None for an error of the images themselves."""
    text = str(error)
    if "shared memory" in text or "resize file" in text:
        reason = one_line(text.rpartition("RuntimeError: ")[2])
        return f"{reason}; in a container make /dev/shm larger"
    if text.startswith(KILLED):
        return one_line(text)
    if isinstance(error, RuntimeError) or "in DataLoader worker process" in text:
        return None
    return one_line(text) or type(error).__name__


def _leave_signals_to_the_parent(worker: int) -> None:
    """Let a worker ignore Ctrl-C and end quietly at SIGTERM: the parent ends its epoch and then its workers.

    It ends at once: a second SIGTERM would interrupt an orderly exit, which then has the status of an error.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))
