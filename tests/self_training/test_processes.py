"""Every process of a launch visits its own part of the images, and together they visit each once."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from tllib_ancon.runtime.processes import Shard


@given(st.integers(1, 40), st.integers(1, 5))
def test_shards_hold_each_sample_once_and_number_their_own(num_samples, world_size):
    """Padded, they are as long as each other and interleave to all samples."""
    shards = [Shard(num_samples, rank, world_size) for rank in range(world_size)]
    assert sorted(position for shard in shards for position in shard.positions) == list(range(num_samples))
    for shard in shards:
        positions = torch.tensor(shard.positions, dtype=torch.long)
        assert shard.rows(positions).tolist() == list(range(len(shard)))
    together = [position for row in zip(*(shard.padded_positions for shard in shards), strict=True) for position in row]
    assert together[:num_samples] == list(range(num_samples))
