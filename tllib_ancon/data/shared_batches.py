"""Batches of bytes in memory that data-loading workers and this process share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from tllib_ancon.errors import UserError

PREFETCHED = 2
"""Batches that a worker may be ahead of the one in use."""


class Pixels(NamedTuple):
    """An image as bytes (H, W, C), and the seed of its random numbers."""

    values: np.ndarray
    seed: int


class PixelBatch(NamedTuple):
    """The bytes of a batch: an array (B, H, W, C), or the place (worker, number) where they lie; and the B seeds."""

    values: np.ndarray | tuple[int, int]
    seeds: list[int]


class SharedBatches:
    """Collates items whose images are :class:`Pixels`, and lays a worker's where this process reads them.

    A data loader maps new memory for every batch, and its pages cost more than the bytes that fill them. Here a worker
    has ``PREFETCHED`` + 1 places and fills one after the other: what it is ahead, and the one in use.

    Args:
        workers: processes that load; with none, a batch is an array of this process
        batch_size: B, the most images of a batch
    """

    def __init__(self, workers: int, batch_size: int):
        self.workers = workers
        self.batch_size = batch_size
        self.places: Tensor | None = None
        self.filled = 0

    @property
    def reserved(self) -> bool:
        """Whether there is all the memory that the workers need."""
        return self.workers == 0 or self.places is not None

    def reserve(self, shape: Sequence[int]) -> None:
        """Take the memory for images of this shape, before the workers start.

        Raises:
            UserError: there is not enough shared memory (how much is needed)
        """
        sizes = (self.workers, PREFETCHED + 1, self.batch_size, *shape)
        try:
            self.places = torch.empty(sizes, dtype=torch.uint8).share_memory_()
        except RuntimeError as error:
            raise UserError(
                f"{self.workers} workers need {np.prod(sizes) / 1e6:.0f} MB of shared memory ({error}); pass fewer "
                "`workers` or a smaller `batch_size`, and in a container make /dev/shm larger"
            ) from error

    def __call__(self, items: Sequence[tuple[Any, ...]]) -> tuple[PixelBatch | list[int], ...]:
        columns = zip(*items, strict=True)
        return tuple(self._lay(column) if isinstance(column[0], Pixels) else list(column) for column in columns)

    def _lay(self, images: Sequence[Pixels]) -> PixelBatch:
        values, seeds = [image.values for image in images], [image.seed for image in images]
        worker = get_worker_info()
        if worker is None:
            return PixelBatch(np.stack(values), seeds)
        place = worker.id, self.filled % (PREFETCHED + 1)
        self.filled += 1
        np.stack(values, out=self.places[place][: len(values)].numpy())
        return PixelBatch(place, seeds)

    def tensor(self, batch: PixelBatch) -> Tensor:
        """The bytes of a batch, (B, H, W, C) uint8; they stay until the next batch is asked for."""
        if isinstance(batch.values, tuple):
            return self.places[batch.values][: len(batch.seeds)]
        return torch.from_numpy(batch.values)
