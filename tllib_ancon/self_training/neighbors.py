"""Nearest neighbours of a batch in a bank of features, and their neighbours in turn."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from tllib_ancon.errors import UserError
from tllib_ancon.self_training import processes

BLOCK = 64
MEMORY_BUDGET = 2**28


def available_neighbors(name: str, wanted: int, num_samples: int) -> int:
    """``wanted``, or with a warning the N - 1 others that N samples have."""
    if wanted < 1:
        raise UserError(f"{name}={wanted}: expected at least 1")
    if wanted >= num_samples:
        warnings.warn(
            f"{name}={wanted} but a sample has only {num_samples - 1} others: that many are used",
            stacklevel=3,
        )
    return min(wanted, num_samples - 1)


def nearest(queries: Tensor, bank: Tensor, k: int, own: Tensor, memory_budget: int = MEMORY_BUDGET) -> Tensor:
    """The rows of ``bank`` with the largest inner products, without each query's own row.

    This equals the usual "k + 1 best without the first" wherever a query is its own best, and stays right
    where it is not: a sample with an exact copy, or a feature of zeros. Among equal products any may win.

    Args:
        queries: (Q, D) float32
        bank: (N, D) float32 on the same device
        k (int): at most N - 1
        own: (Q,) int64, the queries' own rows
        memory_budget (int): bytes that inner products may take at a time (one query's, 4 N, at least).
            Default: 256 MiB

    Returns: (Q, k) int64, best first
    """
    at_a_time = max(1, memory_budget // (queries.element_size() * len(bank)))
    return torch.cat(
        [
            _largest(_products(rows, bank, own_rows), k)
            for rows, own_rows in zip(queries.split(at_a_time), own.split(at_a_time), strict=True)
        ]
    )


def _products(queries: Tensor, bank: Tensor, own: Tensor) -> Tensor:
    """(Q, N) inner products, the own row's and a padding to whole blocks at -inf."""
    padding = -len(bank) % BLOCK
    products = queries.new_empty(len(queries), len(bank) + padding)
    torch.mm(queries, bank.T, out=products[:, : len(bank)])  # with out=, autocast leaves it alone
    products[:, len(bank) :] = -torch.inf
    return products.scatter_(1, own.unsqueeze(1), -torch.inf)


def _largest(products: Tensor, k: int) -> Tensor:
    """Where each row's k largest lie: in the k blocks with the largest maxima, so only those are sorted."""
    blocks = products.unflatten(1, (-1, BLOCK))
    best_blocks = blocks.amax(2).topk(min(k, blocks.shape[1]), sorted=False).indices
    candidates = blocks.gather(1, best_blocks.unsqueeze(2).expand(-1, -1, BLOCK)).flatten(1)
    positions = candidates.topk(k).indices
    return best_blocks.gather(1, positions // BLOCK) * BLOCK + positions % BLOCK


class ExactSearch(nn.Module):
    """Neighbours and expanded neighbours by searching the whole bank for both.

    The expanded search is one matrix product over the distinct neighbours of the batch. (On an accelerator
    each counts as distinct: finding the copies would stall the step.)

    Args:
        num_samples (int): N
        feature_dim (int): D
        neighbors (int): K, at most N - 1
        expanded_neighbors (int): M, at most N - 1
        memory_budget (int): bytes that inner products may take at a time. Default: 256 MiB

    Inputs:
        - indices: (B,) int64 rows of the batch in the bank
        - bank: (N, D) float32 features of length 1

    Outputs: neighbours (B, K) int64 and, for each, its own neighbours (B, K, M) int64, best first
    """

    def __init__(
        self,
        num_samples: int,
        feature_dim: int,
        neighbors: int,
        expanded_neighbors: int,
        memory_budget: int = MEMORY_BUDGET,
    ):
        super().__init__()
        self.neighbors = neighbors
        self.expanded_neighbors = expanded_neighbors
        self.memory_budget = memory_budget

    def initialize(self, bank: Tensor) -> None:
        """Nothing to prepare."""

    def forward(self, indices: Tensor, bank: Tensor) -> tuple[Tensor, Tensor]:
        near = nearest(bank[indices], bank, self.neighbors, indices, self.memory_budget)
        rows, copies = _distinct(near)
        expanded = nearest(bank[rows], bank, self.expanded_neighbors, rows, self.memory_budget)
        return near, expanded[copies]


def _distinct(near: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct entries and, for each entry of ``near``, which of them it is."""
    if near.device.type == "cpu":
        return torch.unique(near, return_inverse=True)
    return near.flatten(), torch.arange(near.numel(), device=near.device).view_as(near)


class CachedSearch(nn.Module):
    """An approximation that searches a small sketch of the bank and keeps each sample's list of neighbours.

    Neighbours are shortlisted by inner products along the bank's 64 principal directions, as they were at the
    start, and ranked by exact products: exact where D ≤ 64 and wherever the 64 best by the sketch hold them.
    Expanded neighbours are the best of those a neighbour had at its own last visit (4 M are kept) and of the
    sample itself, by exact products with the present bank: exact wherever these hold them. So a stale
    list may overrate the reciprocity that NRC asks for, but never miss it.

    A step costs one (B, 64) x (64, N) product. The buffers take 256 N + 16 M N bytes.

    Args, inputs and outputs: as :class:`ExactSearch`; :meth:`initialize` with the filled bank comes first
    """

    DIRECTIONS = 64
    SHORTLIST = 64
    KEPT = 4

    def __init__(
        self,
        num_samples: int,
        feature_dim: int,
        neighbors: int,
        expanded_neighbors: int,
        memory_budget: int = MEMORY_BUDGET,
    ):
        super().__init__()
        self.neighbors = neighbors
        self.expanded_neighbors = expanded_neighbors
        self.memory_budget = memory_budget
        self.kept = min(self.KEPT * expanded_neighbors, num_samples - 1)
        self.shortlist = min(max(self.SHORTLIST, neighbors, self.kept), num_samples - 1)
        num_directions = min(self.DIRECTIONS, feature_dim)
        self.register_buffer("directions", torch.zeros(feature_dim, num_directions))
        self.register_buffer("sketch", torch.zeros(num_samples, num_directions))
        self.register_buffer("lists", torch.zeros(num_samples, self.kept, dtype=torch.int32))

    @torch.no_grad()
    def initialize(self, bank: Tensor) -> None:
        """Take the principal directions of ``bank`` and search it once for every sample's neighbours."""
        with torch.autocast(bank.device.type, enabled=False):
            _, directions = torch.linalg.eigh((bank.T @ bank).cpu())
            self.directions.copy_(directions[:, -self.directions.shape[1] :])
            torch.mm(bank, self.directions, out=self.sketch)
        everyone = torch.arange(len(bank), device=bank.device)
        self.lists.copy_(nearest(bank, bank, self.kept, everyone, self.memory_budget))

    def forward(self, indices: Tensor, bank: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(bank.device.type, enabled=False):
            near = self._near(indices, bank)
            return near, self._expand(indices, near, bank)

    def _near(self, indices: Tensor, bank: Tensor) -> Tensor:
        everyone = processes.gather(indices)
        self.sketch[everyone] = bank[everyone] @ self.directions
        shortlist = nearest(self.sketch[indices], self.sketch, self.shortlist, indices, self.memory_budget)
        products = _products_with(indices, shortlist, bank, self.memory_budget)
        order = products.topk(max(self.neighbors, self.kept)).indices
        ranked = shortlist.gather(1, order)
        self.lists[everyone] = processes.gather(ranked[:, : self.kept].int())
        return ranked[:, : self.neighbors]

    def _expand(self, indices: Tensor, near: Tensor, bank: Tensor) -> Tensor:
        samples = indices.repeat_interleave(near.shape[1]).unsqueeze(1)
        lists = self.lists[near.flatten()].long()
        candidates = torch.cat([lists, samples], 1)
        products = _products_with(near.flatten(), candidates, bank, self.memory_budget)
        listed_already = (lists == samples).any(1)
        products[:, -1].masked_fill_(listed_already, -torch.inf)
        best = products.topk(self.expanded_neighbors).indices
        return candidates.gather(1, best).view(*near.shape, -1)


def _products_with(rows: Tensor, candidates: Tensor, bank: Tensor, memory_budget: int) -> Tensor:
    """(Q, C) inner products of the bank's rows (Q,) with the candidates (Q, C) of each."""
    at_a_time = max(1, memory_budget // (candidates.shape[1] * bank[0].nbytes))
    return torch.cat(
        [
            torch.bmm(bank[others], bank[some].unsqueeze(2)).squeeze(2)
            for some, others in zip(rows.split(at_a_time), candidates.split(at_a_time), strict=True)
        ]
    )


SEARCHES = {"exact": ExactSearch, "cached": CachedSearch}
