from __future__ import annotations

import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from tests.data.test_images import AUGMENTATION, domain
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import UnlabelledImages
from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.data.shared_batches import PREFETCHED, Pixels, SharedBatches
from tllib_ancon.data.transforms import evaluation_transform
from tllib_ancon.errors import UserError

__all__ = ["domain"]
SHAPE = (2, 3, 1)


class Numbers(Dataset):
    """Item i is an image of the number i, its seed, and i."""

    def __len__(self) -> int:
        return 90

    def __getitem__(self, number: int) -> tuple[Pixels, int]:
        return Pixels(torch.full(SHAPE, number, dtype=torch.uint8).numpy(), 10 * number), number


@pytest.mark.parametrize(("workers", "context"), [(1, "fork"), (2, "fork"), (2, "spawn")])
def test_a_batch_stays_until_the_next_one_is_asked_for(workers: int, context: str) -> None:
    shared = SharedBatches(workers, batch_size=4)
    shared.reserve(SHAPE)
    loader = DataLoader(
        Numbers(),
        4,
        num_workers=workers,
        collate_fn=shared,
        prefetch_factor=PREFETCHED,
        persistent_workers=True,
        multiprocessing_context=context,
    )
    for epoch in range(2):
        for batch, numbers in loader:
            if epoch == 0 and numbers[0] == 40:
                break  # an epoch that is left early
            assert batch.seeds == [10 * number for number in numbers]
            time.sleep(0.005)  # the workers run ahead
            assert shared.tensor(batch)[:, 1, 2, 0].tolist() == numbers


def test_places_are_one_more_than_a_worker_may_be_ahead() -> None:
    shared = SharedBatches(workers=2, batch_size=4)
    assert not shared.reserved
    shared.reserve(SHAPE)
    assert shared.reserved
    assert shared.places.shape == (2, PREFETCHED + 1, 4, *SHAPE)
    assert shared.places.is_shared()


def test_without_workers_nothing_is_shared() -> None:
    shared = SharedBatches(workers=0, batch_size=4)
    assert shared.reserved
    batch, numbers = shared([Numbers()[3], Numbers()[5]])
    assert shared.tensor(batch).unique().tolist() == numbers == [3, 5]


def test_too_little_shared_memory_is_said_before_a_worker_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("unable to allocate shared memory(shm)")

    monkeypatch.setattr(torch.Tensor, "share_memory_", full)
    with pytest.raises(UserError, match=r"2 workers need 30 MB of shared memory .*`workers`"):
        SharedBatches(workers=2, batch_size=50).reserve((100, 1000, 1))


def test_more_keys_than_images(domain: Domain) -> None:
    keys = [*range(12), *range(12)]
    loader = ImageLoader(UnlabelledImages(domain, evaluation_transform(AUGMENTATION)), 20, 1, keys)
    assert [len(indices) for indices, _ in loader] == [20, 4]
