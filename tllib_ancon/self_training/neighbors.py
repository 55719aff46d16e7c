"""Nearest neighbours of a batch in a bank of features, and their neighbours in turn."""

import math
import warnings

import torch
from torch import Tensor

BLOCK = 64
BUDGET = 2**28
"""Bytes that inner products may take at a time; those of one query, 4 N, are the least."""


def available_neighbors(name: str, requested: int, num_samples: int) -> int:
    """``requested``, or with a warning the N - 1 others that N samples have."""
    if requested >= num_samples:
        warnings.warn(
            f"{name}={requested} but a sample has only {num_samples - 1} others: that many are used", stacklevel=4
        )
    return min(requested, num_samples - 1)


def nearest(queries: Tensor, bank: Tensor, k: int, query_rows: Tensor) -> Tensor:
    """The k rows of ``bank`` (N, D) nearest to each query (Q, D) by inner product, best first, but its own row. They
    lie in the k blocks of 64 with the largest maxima."""
    at_a_time = max(1, BUDGET // (queries.element_size() * len(bank)))
    padded = math.ceil(len(bank) / BLOCK) * BLOCK
    best = []
    for rows, own_rows in zip(torch.split(queries, at_a_time), torch.split(query_rows, at_a_time), strict=True):
        products = queries.new_empty(len(rows), padded)
        torch.mm(rows, bank.T, out=products[:, : len(bank)])  # with out=, autocast leaves it alone
        products[:, len(bank) :] = -torch.inf
        blocks = products.scatter_(1, own_rows.unsqueeze(1), -torch.inf).view(len(rows), -1, BLOCK)
        best_blocks = blocks.amax(2).topk(min(k, blocks.shape[1]), sorted=False).indices  # only these are sorted
        candidates = blocks.gather(1, best_blocks.unsqueeze(2).expand(-1, -1, BLOCK)).flatten(1)
        positions = candidates.topk(k).indices
        best.append(best_blocks.gather(1, positions // BLOCK) * BLOCK + positions % BLOCK)
    return torch.cat(best)


def nearest_two_fold(indices: Tensor, bank: Tensor, k: int, expanded: int) -> tuple[Tensor, Tensor]:
    """Find the k neighbours (B, k) of rows in the bank, and the neighbours (B, k, M) of each, best first, by one
    product."""
    near = nearest(bank[indices], bank, k, indices)
    rows, copies = _distinct(near)
    return near, nearest(bank[rows], bank, expanded, rows)[copies]


def _distinct(near: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct entries and, for each entry of ``near``, which of them it is."""
    if near.device.type == "cpu":
        rows, copies = torch.unique(near, return_inverse=True)
        return rows, copies
    return near.flatten(), torch.arange(near.numel(), device=near.device).view_as(near)
