"""Datasets over a domain: with labels for a source and for evaluation, without for adaptation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import Dataset

from tllib_ancon.data.domain import Domain

Transform = Callable[[Any], Any]


class DomainImages(Dataset[Any]):
    """Images of a domain, each item decided by its key and the seed alone.

    A key is ``epoch * N + index``; :class:`~tllib_ancon.data.sampling.EpochSampler` makes them. The transform's random
    numbers come from (seed, key), so that an epoch has the same tensors whatever the number of workers. A transform
    of pictures leaves the tensors of a domain that :attr:`~tllib_ancon.data.domain.Domain.holds_tensors` as they are.

    Args:
        domain (Domain): what to read
        transform (callable): PIL image -> tensor; where it has a ``resizing``, images come from the cache of it
        seed (int): of the augmentation. Default: 0
    """

    def __init__(self, domain: Domain, transform: Transform, seed: int = 0):
        self.domain = domain
        self.transform = transform
        self.seed = seed

    def __len__(self) -> int:
        return len(self.domain)

    def image(self, key: int) -> Any:
        resizing = getattr(self.transform, "resizing", None)
        image = self.domain.image(key % len(self), resizing)
        if self.domain.holds_tensors and resizing is not None:
            return image
        with seeded(item_seed(self.seed, key)):
            return self.transform(image)


class UnlabelledImages(DomainImages):
    """Items (index, image): what adaptation may see."""

    def __getitem__(self, key: int) -> tuple[int, Any]:
        return key % len(self), self.image(key)


class LabelledImages(DomainImages):
    """Items (image, label): a source domain, or a target domain under evaluation.

    Raises:
        UserError: the domain has no labels
    """

    def __init__(self, domain: Domain, transform: Transform, seed: int = 0):
        super().__init__(domain.require_labels(), transform, seed)

    def __getitem__(self, key: int) -> tuple[Any, int]:
        assert self.domain.labels is not None
        return self.image(key), int(self.domain.labels[key % len(self)])


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """In this context torch's random numbers on the CPU start from ``seed``; after it they go on as before."""
    generator = torch.default_generator
    state = generator.get_state()
    try:
        generator.manual_seed(seed)
        yield
    finally:
        generator.set_state(state)


def item_seed(seed: int, key: int) -> int:
    """A well-mixed 63-bit number from a seed and a key (the finaliser of SplitMix64)."""
    mask = (1 << 64) - 1
    value = (seed * 0x9E3779B97F4A7C15 + key + 0x9E3779B97F4A7C15) & mask
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return (value ^ (value >> 31)) >> 1
