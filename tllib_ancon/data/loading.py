"""Batches of images: bytes come from the workers, and what is left to do is done on the device."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Protocol

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import BatchSampler, SequentialSampler, default_collate

from tllib_ancon.data.images import DomainImages
from tllib_ancon.data.transforms import Bytes, ImageTransform
from tllib_ancon.data.worker_pool import PixelBatch, Pixels, Reading, WorkerPool
from tllib_ancon.errors import UserError


class Keys(Protocol):
    """Keys of a dataset, and how many there are."""

    def __iter__(self) -> Iterator[int]: ...
    def __len__(self) -> int: ...


class ImageLoader:
    """Batches of a :class:`~tllib_ancon.data.images.DomainImages`, with its images on the GPU where there is one.

    Workers outlive an epoch. Where the transform is an :class:`~tllib_ancon.data.transforms.ImageTransform`, they
    hand over bytes, a quarter of the floats, and a batch is finished on the device. Nothing is drawn from the
    global random state.

    Args:
        dataset: what to load
        batch_size: images a batch
        workers: processes that read images: how many, or a pool that loaders share which are read one after the other
        sampler: keys of the dataset. Default: its own order
        drop_last: drop an incomplete last batch. Default: False

    Raises:
        UserError: a batch of no image, a negative number of workers, too little shared memory for the workers
    """

    def __init__(
        self,
        dataset: DomainImages,
        batch_size: int,
        workers: int | WorkerPool,
        sampler: Keys | None = None,
        drop_last: bool = False,
    ):
        if batch_size < 1:
            raise UserError(f"`batch_size` must be at least 1, got {batch_size}")
        self.dataset = dataset
        self.batch_size = batch_size
        self.sampler: Keys = SequentialSampler(dataset) if sampler is None else sampler
        self.batches = BatchSampler(self.sampler, batch_size, drop_last)
        self.transform: ImageTransform | None = None
        if isinstance(dataset.transform, ImageTransform) and not dataset.domain.holds_tensors:
            self.transform = dataset.transform
            dataset = copy(dataset)
            dataset.transform = _InWorker(self.transform)
        self.on_gpu = torch.cuda.is_available()
        self.device = torch.device("cuda" if self.on_gpu else "cpu")
        self.pool = workers if isinstance(workers, WorkerPool) else WorkerPool(workers)
        self.reading = Reading(dataset, batch_size, default_collate, pinned=self.on_gpu and self.transform is None)
        self.pool.add(self.reading)

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def num_images(self) -> int:
        """Of all batches together."""
        every = len(self.sampler)
        return every - every % self.batch_size if self.batches.drop_last else every

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        for batch in self.pool.batches(self.reading, self.batches):
            yield tuple(map(self._finish, batch))

    def _finish(self, part: PixelBatch | Tensor | list[int]) -> Tensor:
        if isinstance(part, PixelBatch):
            assert self.transform is not None
            pixels = self.pool.tensor(part)
            pixels = pixels.pin_memory() if self.on_gpu else pixels
            return self.transform.finish(pixels.to(self.device, non_blocking=True), part.seeds)
        part = torch.as_tensor(part)
        return part.to(self.device, non_blocking=True) if part.ndim == 4 else part


class _InWorker:
    """The part of a transform before the device, with the seed of the image's random numbers."""

    def __init__(self, transform: ImageTransform):
        self.transform = transform
        self.resizing = transform.resizing

    def __call__(self, image: Image.Image | Bytes) -> Pixels:
        return Pixels(self.transform.pixels(image), torch.initial_seed())
