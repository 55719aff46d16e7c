"""Batches of images: bytes come from the workers, and are normalised on the device."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from tllib_ancon.data.images import DomainImages
from tllib_ancon.data.transforms import ImageTransform
from tllib_ancon.errors import UserError


class ImageLoader:
    """Batches of a :class:`~tllib_ancon.data.images.DomainImages`, with its images on the GPU where there is one.

    Workers outlive an epoch. Where the transform is an :class:`~tllib_ancon.data.transforms.ImageTransform`, they
    hand over bytes, a quarter of the floats, and a batch is normalised on the device. Nothing is drawn from the
    global random state.

    Args:
        dataset: what to load
        batch_size: images a batch
        workers: processes that read images
        sampler: keys of the dataset. Default: its own order
        drop_last: drop an incomplete last batch. Default: False

    Raises:
        UserError: a batch of no image, a negative number of workers
    """

    def __init__(
        self,
        dataset: DomainImages,
        batch_size: int,
        workers: int,
        sampler: Sampler[int] | None = None,
        drop_last: bool = False,
    ):
        if batch_size < 1:
            raise UserError(f"--batch-size must be at least 1, got {batch_size}")
        if workers < 0:
            raise UserError(f"--workers must be at least 0, got {workers}")
        self.normalize = None
        if isinstance(dataset.transform, ImageTransform):
            self.normalize = dataset.transform.normalize
            dataset = copy(dataset)
            dataset.transform = dataset.transform.pixels
        on_gpu = torch.cuda.is_available()
        self.device = torch.device("cuda" if on_gpu else "cpu")
        self.sampler = sampler
        self.batches = DataLoader(
            dataset,
            batch_size,
            sampler=sampler,
            drop_last=drop_last,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=on_gpu,
            generator=torch.Generator(),
        )

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        for batch in self.batches:
            yield tuple(self._finish(part) if part.ndim == 4 else part for part in batch)

    def _finish(self, images: Tensor) -> Tensor:
        images = images.to(self.device, non_blocking=True)
        return images if self.normalize is None else self.normalize(images)
