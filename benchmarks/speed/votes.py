"""Time and memory of the vote stores."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from benchmarks.speed.timing import Row, in_turn, row
from tllib_ancon.self_training.ensemble import DenseVotes, SparseVotes

Store = SparseVotes | DenseVotes
VOTE_SHARE = 0.7
ODDS = (0.62, 0.2, 0.08, 0.04, 0.03, 0.015, 0.01, 0.005)
"""How often a sample is taken for each of its favourite classes: most of the time for one, now and then for others."""


def measure(rounds: int = 400, epochs: int = 20, **_: object) -> list[Row]:
    """An update for a batch of 64, and what votes of 20 epochs take, at two sizes of the target set."""
    rows = []
    for kind, limits in ((SparseVotes, {"at_most": 0.3}), (DenseVotes, {})):
        store = kind(50_000, 1000)
        cast_votes(store, 1000, epochs=1)
        updates = map(store.add, *zip(*random_votes(store, 1000, rounds + 5, 64), strict=True))
        seconds = in_turn({"add": partial(next, updates)}, rounds, warmup=5)["add"]
        title = f"update of {kind.__name__[:-5].lower()} votes, N=50,000 K=1000 B=64"
        rows.append(row(title, [1e3 * value for value in seconds], "ms", **limits))
    for num_samples, num_classes, limit in ((50_000, 1000, 8), (1_281_167, 21_841, 300)):
        title = f"N={num_samples:,} K={num_classes:,}"
        store = SparseVotes(num_samples, num_classes)
        cast_votes(store, num_classes, epochs)
        rows.append(row(f"sparse votes of {epochs} epochs, {title}", [megabytes(store)], "MB", at_most=limit))
        rows.append(row(f"float32 votes, {title} (on paper)", [num_samples * num_classes * 4 / 1e6], "MB"))
    return rows


def cast_votes(store: Store, num_classes: int, epochs: int, batch: int = 16_384) -> None:
    """Visit every sample once an epoch in a random order."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(epochs):
        for indices in torch.randperm(len(store.counts), generator=generator).split(batch):
            store.add(indices, *_votes(indices, num_classes, generator))


def random_votes(store: Store, num_classes: int, count: int, batch: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Batches (indices, classes, weights) as :meth:`SparseVotes.add` takes them."""
    generator = torch.Generator().manual_seed(1)
    batches = [torch.randint(len(store.counts), (batch,), generator=generator) for _ in range(count)]
    return [(indices, *_votes(indices, num_classes, generator)) for indices in batches]


def _votes(indices: Tensor, num_classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    rank = torch.multinomial(torch.tensor(ODDS), len(indices), replacement=True, generator=generator)
    classes = (indices * 7919 + rank * 104_729) % num_classes
    return classes, (torch.rand(len(indices), generator=generator) < VOTE_SHARE).float()


def megabytes(store: SparseVotes) -> float:
    """Of the store on its device and on the host."""
    return (sum(buffer.nbytes for buffer in store.buffers()) + store._most_used_slots.nbytes) / 1e6
