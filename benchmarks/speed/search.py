"""NRC's search for neighbours against the usual one, which expands the bank to the batch."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.speed.timing import Row, exactly, in_turn, ratio, row
from tllib_ancon.self_training.neighbors import CachedSearch, ExactSearch

NUM_SAMPLES, FEATURE_DIM, BATCH, NEIGHBORS = 55_388, 256, 64, 5


def measure(rounds: int = 5) -> list[Row]:
    """VisDA's real domain: N = 55,388 features of 256 dimensions, a batch of 64, five neighbours of five neighbours."""
    bank = random_bank(NUM_SAMPLES, FEATURE_DIM)
    indices = torch.randint(NUM_SAMPLES, (BATCH,), generator=torch.Generator().manual_seed(1))
    exact, cached = ExactSearch(*_sizes()), cached_under_way(bank)
    found, expected = exact(indices, bank), usual_search(indices, bank)
    same = sum((ours == theirs).sum() for ours, theirs in zip(found, expected, strict=True))
    total = sum(ours.numel() for ours in found)
    seconds = in_turn(
        {
            "usual": lambda: usual_search(indices, bank),
            "exact": lambda: exact(indices, bank),
            "cached": lambda: [cached(indices, bank) for _ in range(cached.REFRESH)],
        },
        rounds,
    )
    a_step = [value / cached.REFRESH for value in seconds["cached"]]
    title = "N=55,388 D=256 B=64 K=M=5"
    return [
        row(f"NRC's search by expand and bmm, {title}", [1e3 * value for value in seconds["usual"]], "ms"),
        ratio("expand and bmm / exact search", seconds["usual"], seconds["exact"], at_least=2.5),
        exactly("exact search: indices that are those of expand and bmm", 100 * int(same) / total, "%", at_least=100),
        ratio("expand and bmm / cached search", seconds["usual"], a_step, at_least=20),
    ]


def _sizes() -> tuple[int, int, int, int]:
    return NUM_SAMPLES, FEATURE_DIM, NEIGHBORS, NEIGHBORS


def random_bank(num_samples: int, feature_dim: int) -> Tensor:
    """(N, D) features of length 1 around one centre a class."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(12, feature_dim, generator=generator)
    noise = torch.randn(num_samples, feature_dim, generator=generator)
    return torch.nn.functional.normalize(centres[torch.arange(num_samples) % 12] + noise)


def cached_under_way(bank: Tensor) -> CachedSearch:
    """A cached search with some lists in place of those that its first, long pass over the bank would find."""
    search = CachedSearch(len(bank), bank.shape[1], NEIGHBORS, NEIGHBORS)
    generator = torch.Generator().manual_seed(2)
    search.directions.copy_(torch.linalg.qr(torch.randn(search.directions.shape, generator=generator))[0])
    search.sketch.copy_(bank @ search.directions)
    search.lists.random_(len(bank), generator=generator)
    return search


def usual_search(indices: Tensor, bank: Tensor) -> tuple[Tensor, Tensor]:
    """Neighbours (B, K) and their neighbours (B, K, M): the best K + 1 without the first, the bank once a sample."""
    near = (bank[indices] @ bank.T).topk(NEIGHBORS + 1).indices[:, 1:]
    copies = bank.unsqueeze(0).expand(len(indices), -1, -1)
    return near, torch.bmm(bank[near], copies.mT).topk(NEIGHBORS + 1).indices[:, :, 1:]
