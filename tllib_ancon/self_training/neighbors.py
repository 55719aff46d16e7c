"""Nearest neighbours of a batch in a bank of features, and their neighbours in turn."""

from __future__ import annotations

import warnings
from typing import Annotated, Any

import torch
from annotated_types import Ge
from torch import Tensor

from tllib_ancon.errors import UserError
from tllib_ancon.self_training import processes
from tllib_ancon.self_training.checks import FixedPrecision, Option

BLOCK = 64
BUDGET = 2**28

Neighbors = Annotated[int, Ge(1), Option("nearest neighbours of a sample; 5 for NRC, 3 for AaD (5 on VisDA2017)")]


def available_neighbors(name: str, wanted: int, num_samples: int) -> int:
    """``wanted``, or with a warning the N - 1 others that N samples have."""
    if wanted >= num_samples:
        warnings.warn(
            f"{name}={wanted} but a sample has only {num_samples - 1} others: that many are used", stacklevel=4
        )
    return min(wanted, num_samples - 1)


def nearest(queries: Tensor, bank: Tensor, k: int, own: Tensor, memory_budget: int = BUDGET) -> Tensor:
    """The k rows of ``bank`` (N, D) nearest to each query (Q, D) by inner product, best first, but its own row.

    They lie in the k blocks of 64 with the largest maxima. This equals the usual "k + 1 best without the first"
    wherever a query is its own best, and stays right where it is not: a sample with an exact copy, or a feature of
    zeros. Among equal products any may win. The budget is of bytes that inner products may take at a time (4 N, one
    query's, at least).
    """
    at_a_time = max(1, memory_budget // (queries.element_size() * len(bank)))
    padded = len(bank) + -len(bank) % BLOCK
    found = []
    for rows, own_rows in zip(torch.split(queries, at_a_time), torch.split(own, at_a_time), strict=True):
        products = queries.new_empty(len(rows), padded)
        torch.mm(rows, bank.T, out=products[:, : len(bank)])  # with out=, autocast leaves it alone
        products[:, len(bank) :] = -torch.inf
        blocks = products.scatter_(1, own_rows.unsqueeze(1), -torch.inf).view(len(rows), -1, BLOCK)
        best_blocks = blocks.amax(2).topk(min(k, blocks.shape[1]), sorted=False).indices  # only these are sorted
        candidates = blocks.gather(1, best_blocks.unsqueeze(2).expand(-1, -1, BLOCK)).flatten(1)
        positions = candidates.topk(k).indices
        found.append(best_blocks.gather(1, positions // BLOCK) * BLOCK + positions % BLOCK)
    return torch.cat(found)


class ExactSearch(FixedPrecision):
    """Neighbours (B, K) and their own neighbours (B, K, M), best first, by searching the whole bank for both.

    Takes the rows of the batch in the bank, (B,), and the bank, (N, D) float32 of length 1. The expanded search is one
    matrix product over the distinct neighbours of the batch. (On an accelerator each counts as distinct: finding the
    copies would stall the step.)
    """

    def __init__(
        self, num_samples: int, feature_dim: int, neighbors: int, expanded_neighbors: int, memory_budget: int = BUDGET
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
        rows, copies = torch.unique(near, return_inverse=True)
        return rows, copies
    return near.flatten(), torch.arange(near.numel(), device=near.device).view_as(near)


class CachedSearch(ExactSearch):
    """An approximation that searches a small sketch of the bank and keeps each sample's list of neighbours.

    Neighbours are shortlisted by inner products along the bank's 64 principal directions, which are taken anew every
    100 steps, and ranked by exact products: exact where D ≤ 64 and wherever the 64 best by the sketch hold them.
    Expanded neighbours are, by exact products, the best of those a neighbour had at its own last visit (4 M are kept),
    of the sample's shortlist and of the sample itself: exact wherever these hold them. So they may overrate the
    reciprocity that NRC asks for, but never miss it.

    A step costs one (B, 64) x (64, N) product, every hundredth also one (D, N) x (N, D), and waits for the device then.
    The buffers take 256 N + 16 M N bytes. :meth:`initialize` with the filled bank comes first.
    """

    directions: Tensor
    sketch: Tensor
    lists: Tensor

    DIRECTIONS = 64
    REFRESH = 100
    SHORTLIST = 64
    KEPT = 4

    def __init__(
        self, num_samples: int, feature_dim: int, neighbors: int, expanded_neighbors: int, memory_budget: int = BUDGET
    ):
        super().__init__(num_samples, feature_dim, neighbors, expanded_neighbors, memory_budget)
        self.kept = min(self.KEPT * expanded_neighbors, num_samples - 1)
        self.shortlist = min(max(self.SHORTLIST, neighbors, self.kept), num_samples - 1)
        self.steps = 0
        num_directions = min(self.DIRECTIONS, feature_dim)
        self.register_buffer("directions", torch.zeros(feature_dim, num_directions))
        self.register_buffer("sketch", torch.zeros(num_samples, num_directions))
        self.register_buffer("lists", torch.zeros(num_samples, self.kept, dtype=torch.int32))

    def get_extra_state(self) -> int:
        return self.steps

    def set_extra_state(self, state: int) -> None:
        self.steps = state

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        lists = state_dict.get(prefix + "lists")
        if lists is not None and lists.numel() and not 0 <= int(lists.min()) <= int(lists.max()) < len(self.lists):
            raise UserError(f"the loaded neighbours are not those of {len(self.lists)} samples")
        super()._load_from_state_dict(state_dict, prefix, *args)

    @torch.no_grad()
    def initialize(self, bank: Tensor) -> None:
        """Take the principal directions of ``bank`` and search it once for every sample's neighbours."""
        with torch.autocast(bank.device.type, enabled=False):
            self._draw(bank)
        everyone = torch.arange(len(bank), device=bank.device)
        self.lists.copy_(nearest(bank, bank, self.kept, everyone, self.memory_budget))

    def forward(self, indices: Tensor, bank: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(bank.device.type, enabled=False):
            everyone = processes.gather(indices)
            self.steps += 1
            if self.steps % self.REFRESH == 0:
                self._draw(bank)
            else:  # in the bank the rows of all processes' batches are new
                self.sketch[everyone] = bank[everyone] @ self.directions
            shortlist = nearest(self.sketch[indices], self.sketch, self.shortlist, indices, self.memory_budget)
            products = _inner_products(indices.unsqueeze(1), shortlist, bank, self.memory_budget).squeeze(1)
            shortlist = shortlist.gather(1, products.argsort(1, descending=True))
            near = shortlist[:, : self.neighbors]
            self.lists[everyone] = processes.gather(shortlist[:, : self.kept].int())
            return near, self._expand(near, torch.cat([shortlist, indices.unsqueeze(1)], 1), bank)

    def _draw(self, bank: Tensor) -> None:
        _, directions = torch.linalg.eigh((bank.T @ bank).cpu())
        self.directions.copy_(directions[:, -self.directions.shape[1] :])
        torch.mm(bank, self.directions, out=self.sketch)

    def _expand(self, near: Tensor, pool: Tensor, bank: Tensor) -> Tensor:
        """The neighbours' own neighbours among the pool of their sample, (B, P), and their lists."""
        lists = self.lists[near].long()
        by_pool = _inner_products(near, pool, bank, self.memory_budget)
        by_list = _inner_products(near.reshape(-1, 1), lists.flatten(0, 1), bank, self.memory_budget).view_as(lists)
        by_pool.masked_fill_(pool.unsqueeze(1) == near.unsqueeze(2), -torch.inf)
        by_list.masked_fill_((lists.unsqueeze(3) == pool[:, None, None]).any(3), -torch.inf)
        candidates = torch.cat([lists, pool.unsqueeze(1).expand(-1, near.shape[1], -1)], 2)
        best = torch.cat([by_list, by_pool], 2).topk(self.expanded_neighbors).indices
        return candidates.gather(2, best)


def _inner_products(rows: Tensor, candidates: Tensor, bank: Tensor, memory_budget: int) -> Tensor:
    """(Q, R, C) inner products of the bank's rows (Q, R) with the candidates (Q, C)."""
    at_a_time = max(1, memory_budget // (candidates.shape[1] * bank[0].nbytes))
    parts = zip(torch.split(rows, at_a_time), torch.split(candidates, at_a_time), strict=True)
    return torch.cat([torch.bmm(bank[some], bank[others].mT) for some, others in parts])
