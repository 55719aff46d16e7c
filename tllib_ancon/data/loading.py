"""Batches of a domain's images: their order, their random numbers, and the items in them."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, default_collate

from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.transforms import ImageTransform, Transform
from tllib_ancon.runtime.errors import BadImages, UserError, named, one_line
from tllib_ancon.runtime.processes import Shard

ENOUGH = 8
"""Images with which a model is tried."""


class EpochSampler(Sampler[int]):
    """A new random order of these positions each epoch, as ``length`` keys ``epoch * N + index`` of N images in all.
    More keys than positions start further passes, each in a new order; processes that visit other images with the same
    seed differ by ``rank``."""

    RANKS_APART = 2**53  # beyond what seed and epoch reach

    def __init__(self, indices: Sequence[int], num_samples: int, seed: int, length: int, rank: int = 0):
        self.indices = torch.as_tensor(indices)
        self.num_samples = num_samples
        self.seed = seed
        self.rank = rank
        self.length = length
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


class UnlabelledImages(Dataset[tuple[int, Any]]):
    """Items (index, image): what adaptation may see. The seed and the key of an item determine it.

    A key is ``epoch * N + index``, as :class:`EpochSampler` gives them.

    The transform's random numbers come from (seed, key), so that an epoch has the same tensors for any number of
    workers.
    """

    def __init__(self, domain: ImageSource, transform: Transform, seed: int = 0):
        self.domain = domain
        self.transform = transform
        self.seed = seed

    def __len__(self) -> int:
        return len(self.domain)

    def __getitem__(self, key: int) -> tuple[int, Any]:
        """The index of a key, and its image; of an :class:`ImageTransform` its pixels (H, W, C) uint8."""
        index = key % len(self)
        resizing = None
        if isinstance(self.transform, ImageTransform):
            resizing = self.transform.resizing
        return index, self.transformed(self.domain.image(index, resizing), key)

    def transformed(self, image: Any, key: int) -> Any:
        with torch.random.fork_rng([], device_type="cpu"):
            torch.default_generator.manual_seed(_item_seed(self.seed, key))
            if isinstance(self.transform, ImageTransform):
                return torch.from_numpy(self.transform.pixels(image))
            where = f"domain {self.domain.name}, item {key % len(self)}: the transform"
            try:
                item = self.transform(image)
            except Exception as error:  # of the user's own transform
                raise BadImages(f"{where} raises {type(error).__name__} ({one_line(error)})", "repair it") from error
            return _as_input(item, where)

    def batch(self, keys: Sequence[int]) -> list[Any]:
        """The items of these keys as one batch. Rows of arrays that no transform changes are read at once."""
        if isinstance(self.transform, nn.Identity):
            indices = torch.as_tensor(keys) % len(self)
            rows = self.domain.reader.batch(self.domain.positions[indices.numpy()])
            if rows is not None:
                return [indices, rows]
        items = [self[key] for key in keys]
        try:
            batch: list[Any] = default_collate(items)
        except RuntimeError as error:  # of what the user's own transform returns
            raise BadImages(
                f"domain {self.domain.name}: the transform must return tensors (C, H, W) of one size, such as by "
                f"Resize((224, 224)) and ToTensor() ({one_line(error)})"
            ) from error
        return batch

    def probe(self) -> Any:
        """A few images from the whole domain as a network gets them."""
        positions = [number * len(self) // ENOUGH for number in range(ENOUGH)]
        _, images = self.on_device(self.batch(positions), torch.device("cpu"))
        return images

    def on_device(self, batch: Sequence[Any], device: torch.device) -> tuple[Any, Any]:
        """Indices on the CPU, and images on the device, normalised there where workers give pixels."""
        indices, images = batch
        moved = images.to(device, non_blocking=True)
        if isinstance(self.transform, ImageTransform) and moved.dtype == torch.uint8:
            return indices, self.transform.normalized(moved)
        return indices, moved


def _as_input(item: Any, where: str) -> Tensor:
    """What a transform returns, floats as float32; a network's own type follows later."""
    tensor = torch.from_numpy(np.array(item)) if isinstance(item, np.ndarray) else item
    if not isinstance(tensor, Tensor):
        raise BadImages(f"{where} returns {type(item).__name__}", "it must return a tensor (C, H, W)")
    return tensor.float() if tensor.is_floating_point() else tensor


def _item_seed(seed: int, key: int) -> int:
    """A well-mixed 63-bit number from a seed and a key (the finaliser of SplitMix64)."""
    mask = (1 << 64) - 1
    value = (seed * 0x9E3779B97F4A7C15 + key + 0x9E3779B97F4A7C15) & mask
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return (value ^ (value >> 31)) >> 1


class _Batches(Dataset[Any]):
    """Item KEYS is the batch of these keys. Bad input is a value: an error that a worker raises loses its type."""

    def __init__(self, read_batch: Callable[[Sequence[int]], Any]):
        self.read_batch = read_batch

    def __getitem__(self, keys: Sequence[int]) -> Any:
        try:
            return self.read_batch(keys)
        except UserError as error:
            return error


class ImageLoader:
    """Batches of images on the ``device``, by default the GPU where there is one.

    A data loader of torch reads them. Its processes outlive a pass, and end with this object. In a worker of
    :class:`multiprocessing.Pool`, which may start none, this process reads. Nothing is drawn from the global random
    state.
    """

    def __init__(
        self,
        dataset: UnlabelledImages,
        batch_size: int,
        workers: int,
        sampler: Sequence[int] | EpochSampler | None = None,
        drop_last: bool = False,
        device: torch.device | None = None,
    ):
        self.dataset = dataset
        self.batch_size = batch_size
        self.sampler: Any = range(len(dataset)) if sampler is None else sampler
        self.device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if multiprocessing.current_process().daemon:
            workers = 0
        self.batches = DataLoader(
            _Batches(dataset.batch),
            batch_size=None,
            sampler=BatchSampler(self.sampler, batch_size, drop_last),
            num_workers=workers,
            worker_init_fn=_leave_signals_to_the_parent,
            persistent_workers=workers > 0,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),
        )

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for batch in self.batches:
            if isinstance(batch, UserError):
                raise batch
            yield self.dataset.on_device(batch, self.device)


def _leave_signals_to_the_parent(worker: int) -> None:
    """Let a worker ignore Ctrl-C and end quietly at SIGTERM: the parent ends its epoch and then its workers.

    It ends at once: a second SIGTERM would interrupt an orderly exit, which then has the status of an error.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))


def training_loader(
    images: UnlabelledImages,
    batch_size: int,
    workers: int,
    batches: int | None = None,
) -> ImageLoader:
    """A loader with a new order each epoch, of ``batches`` batches or one pass."""
    num_images = len(images)
    shard = Shard.of_this_process(num_images)
    steps = num_images // shard.world_size // batch_size
    if steps == 0:
        least = f"one batch of {batch_size}"
        if shard.world_size > 1:
            least += f" in each of {shard.world_size} processes"
        raise BadImages(
            f"domain {images.domain.name}: {num_images} images to train on are fewer than {least}",
            f"pass a smaller {named('batch_size')}",
        )
    length = (batches or steps) * batch_size
    sampler = EpochSampler(shard.positions, num_images, images.seed, length, shard.rank)
    return ImageLoader(images, batch_size, workers, sampler, drop_last=True)


def evaluation_loader(
    images: UnlabelledImages, batch_size: int, workers: int, device: torch.device | None = None
) -> ImageLoader:
    """A loader of (index, image) in the domain's order; each of many processes has an equally large part."""
    positions = Shard.of_this_process(len(images)).padded_positions
    return ImageLoader(images, batch_size, workers, positions, device=device)
