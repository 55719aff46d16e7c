"""Which images an epoch visits, in which order: decided by (seed, epoch) and the process alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import Sampler


class EpochSampler(Sampler[int]):
    """A new random order each epoch, as keys ``epoch * N + index`` of :class:`~tllib_ancon.data.images.DomainImages`.

    Args:
        indices: positions in the domain that are visited
        num_samples (int): N, size of the whole domain
        seed (int): of the order
        length (int, optional): keys an epoch; more than ``len(indices)`` starts further passes, each in a new order.
            Default: one pass
        rank (int): of the process among those that visit other images with the same seed. Default: 0
    """

    RANKS_APART = 2**53
    """Beyond what seed and epoch reach."""

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
        passes = -(-self.length // max(len(self.indices), 1))
        generator = torch.Generator().manual_seed(self.rank * self.RANKS_APART + self.seed * 1_000_003 + self.epoch)
        remaining = self.length
        for number in range(self.epoch * passes, (self.epoch + 1) * passes):
            order = self.indices[torch.randperm(len(self.indices), generator=generator)][:remaining]
            remaining -= len(order)
            yield from (order + number * self.num_samples).tolist()


def hold_out(num_samples: int, fraction: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Split [0, N) at random into (kept, held out) index vectors, both sorted.

    Args:
        num_samples (int): N
        fraction (float): of the samples to hold out, in [0, 1); at least one sample is kept, and unless it is 0 at
            least one of several is held out
        seed (int): of the split
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(num_samples, generator=generator)
    held = min(max(round(num_samples * fraction), int(fraction > 0)), num_samples - 1)
    return order[held:].sort().values, order[:held].sort().values
