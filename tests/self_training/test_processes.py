import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tllib_ancon import methods
from tllib_ancon.processes import Shard


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 5))
def test_shards_hold_each_sample_once_and_number_their_own(num_samples: int, world_size: int) -> None:
    """Padded, they are as long as each other and interleave to all samples."""
    shards = [Shard(num_samples, rank, world_size) for rank in range(world_size)]
    assert sorted(position for shard in shards for position in shard.positions) == list(range(num_samples))
    for shard in shards:
        assert shard.rows(torch.tensor(shard.positions, dtype=torch.long)).tolist() == list(range(len(shard)))
    together = [position for row in zip(*(shard.padded_positions for shard in shards), strict=True) for position in row]
    assert together[:num_samples] == list(range(num_samples))


def test_a_shard_keeps_votes_and_averages_of_its_own_samples_alone() -> None:
    shard = Shard(21, rank=1, world_size=4)
    sizes = {"num_samples": 21, "num_classes": 3}
    whole, part = (methods.create("gce+ancon", **sizes, shard=s) for s in (None, shard))
    generator = torch.Generator().manual_seed(0)
    positions = torch.tensor(shard.positions)
    for _ in range(6):
        logits = 3 * torch.randn(len(positions), 3, generator=generator)
        for method in (whole, part):
            method(positions, logits, torch.zeros(len(positions), 1))
    assert whole.votes(positions).sum() > 0
    assert torch.equal(whole.votes(positions), part.votes(positions))
    kept = [tensor.shape[0] for tensor in part.ensemble.store.buffers()]
    assert kept == [len(shard)] * len(kept)
    assert methods.create("elr", **sizes, shard=shard).regularizer.module.targets.shape == (len(shard), 3)
