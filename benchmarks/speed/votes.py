"""Time and memory of the votes."""

from functools import partial

import torch
from torch import Tensor

from benchmarks.speed.timing import Row, in_turn, row
from tllib_ancon.self_training.ensemble import Votes

VOTE_SHARE = 0.7


def measure(rounds: int = 400, **_: object) -> list[Row]:
    """An update for a batch of 64, and the memory of two target sets."""
    store = Votes(50_000, 1000)
    updates = map(store.add, *zip(*random_votes(store, rounds + 5, 64), strict=True))
    seconds = in_turn({"add": partial(next, updates)}, rounds, warmup=5)["add"]
    rows = [row("update of votes, N=50,000 K=1000 B=64", [1e3 * value for value in seconds], "ms", at_most=0.3)]
    for num_samples, num_classes, limit in ((2_817, 31, 8), (50_000, 1000, 100)):
        found = Votes(num_samples, num_classes).counts.nbytes / 1e6
        rows.append(row(f"votes, N={num_samples:,} K={num_classes:,}", [found], "MB", at_most=limit))
    return rows


def random_votes(store: Votes, count: int, batch: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Batches (indices, classes, weights) as :meth:`tllib_ancon.self_training.ensemble.Votes.add` takes them."""
    generator, (num_samples, num_classes) = torch.Generator().manual_seed(1), store.counts.shape
    return [
        (
            torch.randint(num_samples, (batch,), generator=generator),
            torch.randint(num_classes, (batch,), generator=generator),
            (torch.rand(batch, generator=generator) < VOTE_SHARE).float(),
        )
        for _ in range(count)
    ]
