"""NRC's search for neighbours against the usual one, which expands the bank to the batch."""

import torch
from torch import Tensor

from benchmarks.speed.timing import Row, in_turn, ratio, row
from tllib_ancon.self_training.neighbors import nearest_two_fold

NUM_SAMPLES, FEATURE_DIM, BATCH, NEIGHBORS = 55_388, 256, 64, 5


def measure(rounds: int = 5, **_: object) -> list[Row]:
    """VisDA's real domain: N = 55,388 features of 256 dimensions, a batch of 64, five neighbours of five neighbours."""
    bank, indices = random_bank(NUM_SAMPLES, FEATURE_DIM), random_batch(NUM_SAMPLES, BATCH)
    found, expected = (
        torch.cat([part.flatten() for part in search(indices, bank)]) for search in (exact_search, usual_search)
    )
    ways = {
        "usual": lambda: usual_search(indices, bank),
        "exact": lambda: exact_search(indices, bank),
    }
    seconds = in_turn(ways, rounds)
    same = 100 * float((found == expected).double().mean())
    title = "NRC's search by expand and bmm, N=55,388 D=256 B=64 K=M=5"
    return [
        row(title, [1e3 * value for value in seconds["usual"]], "ms"),
        ratio("expand and bmm / exact search", seconds["usual"], seconds["exact"], at_least=2.5),
        row("exact search: indices that are those of expand and bmm", [same], "%", at_least=100),
    ]


def random_bank(num_samples: int, feature_dim: int) -> Tensor:
    """(N, D) features of length 1 around one centre a class."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(12, feature_dim, generator=generator)
    noise = torch.randn(num_samples, feature_dim, generator=generator)
    return torch.nn.functional.normalize(centres[torch.arange(num_samples) % 12] + noise)


def random_batch(num_samples: int, batch: int) -> Tensor:
    return torch.randint(num_samples, (batch,), generator=torch.Generator().manual_seed(1))


def exact_search(indices: Tensor, bank: Tensor) -> tuple[Tensor, Tensor]:
    return nearest_two_fold(indices, bank, NEIGHBORS, NEIGHBORS)


def usual_search(indices: Tensor, bank: Tensor) -> tuple[Tensor, Tensor]:
    """Neighbours (B, K) and their neighbours (B, K, M): the best K + 1 without the first, the bank once a sample."""
    near = (bank[indices] @ bank.T).topk(NEIGHBORS + 1).indices[:, 1:]
    copies = bank.unsqueeze(0).expand(len(indices), -1, -1)
    return near, torch.bmm(bank[near], copies.mT).topk(NEIGHBORS + 1).indices[:, :, 1:]
