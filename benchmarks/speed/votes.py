"""Time and memory of the vote stores."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.speed.timing import Row, exactly, in_turn, row
from tllib_ancon.self_training.votes import DenseVotes, SparseVotes

VOTE_SHARE = 0.7
ODDS = (0.62, 0.2, 0.08, 0.04, 0.03, 0.015, 0.01, 0.005)
"""How often a sample is taken for each of its favourite classes: most of the time for one, now and then for others."""


def measure(rounds: int = 400, epochs: int = 20) -> list[Row]:
    """An update for a batch of 64, and what votes of 20 epochs take, at two sizes of the target set."""
    imagenet = (50_000, 1000)
    sparse, dense = (_update_ms(store(*imagenet), rounds) for store in (SparseVotes, DenseVotes))
    rows = [
        row("update of sparse votes, N=50,000 K=1000 B=64", sparse, "ms", at_most=0.3),
        row("update of dense votes, N=50,000 K=1000 B=64", dense, "ms"),
    ]
    for num_samples, num_classes, limit in ((*imagenet, 8), (1_281_167, 21_841, 300)):
        title = f"N={num_samples:,} K={num_classes:,}"
        store = SparseVotes(num_samples, num_classes)
        cast_votes(store, epochs)
        rows.append(exactly(f"sparse votes of {epochs} epochs, {title}", megabytes(store), "MB", at_most=limit))
        rows.append(exactly(f"float32 votes, {title} (on paper)", num_samples * num_classes * 4 / 1e6, "MB"))
    return rows


def _update_ms(store: SparseVotes | DenseVotes, rounds: int) -> list[float]:
    cast_votes(store, epochs=1)
    batches = iter([*random_votes(store, rounds + 5, 64)])
    seconds = in_turn({"add": lambda: store.add(*next(batches))}, rounds, warmup=5)["add"]
    return [1e3 * value for value in seconds]


def cast_votes(store: SparseVotes | DenseVotes, epochs: int, batch: int = 16_384) -> None:
    """Visit every sample once an epoch in a random order."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(epochs):
        for indices in torch.randperm(len(store.counts), generator=generator).split(batch):
            store.add(indices, *_votes(store, indices, generator))


def random_votes(store: SparseVotes | DenseVotes, count: int, batch: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Batches (indices, classes, weights) as :meth:`SparseVotes.add` takes them."""
    generator = torch.Generator().manual_seed(1)
    batches = [torch.randint(len(store.counts), (batch,), generator=generator) for _ in range(count)]
    return [(indices, *_votes(store, indices, generator)) for indices in batches]


def _votes(store: SparseVotes | DenseVotes, indices: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    num_classes = store.num_classes if isinstance(store, SparseVotes) else store.counts.shape[1]
    rank = torch.multinomial(torch.tensor(ODDS), len(indices), replacement=True, generator=generator)
    classes = (indices * 7919 + rank * 104_729) % num_classes
    return classes, (torch.rand(len(indices), generator=generator) < VOTE_SHARE).float()


def megabytes(store: SparseVotes | DenseVotes) -> float:
    """Of the store on its device and on the host."""
    host = store._most_used_slots.nbytes if isinstance(store, SparseVotes) else 0
    return (sum(buffer.nbytes for buffer in store.buffers()) + host) / 1e6
