from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tllib_ancon.errors import UserError
from tllib_ancon.self_training import neighbors
from tllib_ancon.self_training.neighbors import CachedSearch, ExactSearch, available_neighbors, nearest


def random_bank(num_samples: int, feature_dim: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(num_samples, feature_dim, generator=generator))


def expand_and_bmm(indices: Tensor, bank: Tensor, k: int, kk: int) -> tuple[Tensor, Tensor]:
    """The usual search: the whole bank once per sample, k + 1 best, the first dropped."""
    near = (bank[indices] @ bank.T).topk(k + 1).indices[:, 1:]
    copies = bank.unsqueeze(0).expand(len(indices), -1, -1)
    return near, torch.bmm(bank[near], copies.mT).topk(kk + 1).indices[:, :, 1:]


@settings(deadline=None)
@given(st.integers(2, 200), st.integers(1, 7), st.integers(1, 2**13), st.integers(0, 2**16))
def test_nearest_takes_the_largest_products_but_not_its_own(size, k, memory_budget, seed) -> None:
    k, bank, own = min(k, size - 1), random_bank(size, 3, seed), torch.randperm(size)[:9]
    found = nearest(bank[own], bank, k, own, memory_budget)
    for row, sample in zip(found.tolist(), own.tolist(), strict=True):
        products = [float(torch.dot(bank[sample], other)) for other in bank]
        expected = sorted((p for j, p in enumerate(products) if j != sample), reverse=True)[:k]
        assert [products[j] for j in row] == pytest.approx(expected, abs=1e-6)
        assert len({*row, sample}) == k + 1


@pytest.mark.parametrize("search", [ExactSearch, CachedSearch])
@pytest.mark.parametrize("memory_budget", [1, 10_000, 2**30])
def test_search_finds_what_expand_and_bmm_finds(search, memory_budget: int) -> None:
    bank, indices = random_bank(700, 16), torch.randperm(700)[:32]
    part = search(700, 16, 5, 4, memory_budget)
    part.initialize(bank)
    near, expanded = part(indices, bank)
    expected_near, expected_expanded = expand_and_bmm(indices, bank, 5, 4)
    assert torch.equal(near, expected_near)
    assert torch.equal(expanded, expected_expanded)


def test_products_stay_within_the_memory_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, products = [], neighbors._products
    monkeypatch.setattr(
        neighbors, "_products", lambda *args: sizes.append(products(*args)[:, :640].nbytes) or products(*args)
    )
    ExactSearch(640, 8, 5, 5, memory_budget=30_000)(torch.arange(50), random_bank(640, 8))
    assert len(sizes) > 2
    assert max(sizes) <= 30_000


def test_a_copy_is_a_neighbour_and_the_sample_itself_never_is() -> None:
    bank = random_bank(70, 8)
    bank[:3] = bank[0]
    bank[5] = 0
    near, expanded = ExactSearch(70, 8, 4, 4)(torch.arange(70), bank)
    assert set(near[0, :2].tolist()) == {1, 2}
    assert not (near == torch.arange(70).unsqueeze(1)).any()
    assert not (expanded == near.unsqueeze(2)).any()


@pytest.mark.parametrize("search", [ExactSearch, CachedSearch])
def test_an_accelerators_way_agrees(search, monkeypatch: pytest.MonkeyPatch) -> None:
    bank, indices = random_bank(90, 8), torch.arange(0, 90, 3)
    part = search(90, 8, 5, 5)
    part.initialize(bank)
    expected = part(indices, bank)
    every_one = lambda near: (near.flatten(), torch.arange(near.numel()).view_as(near))  # noqa: E731
    monkeypatch.setattr(neighbors, "_distinct", every_one)
    for found, wanted in zip(part(indices, bank), expected, strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("num_samples", [2, 6, 63, 64, 65, 300])
def test_cached_search_is_exact_while_the_bank_stands_still(num_samples: int) -> None:
    bank, k = random_bank(num_samples, 12), min(5, num_samples - 1)
    cached = CachedSearch(num_samples, 12, k, k)
    cached.initialize(bank)
    indices = torch.randperm(num_samples)[:20]
    for found, wanted in zip(cached(indices, bank), ExactSearch(num_samples, 12, k, k)(indices, bank), strict=True):
        assert torch.equal(found, wanted)


def move(bank: Tensor, indices: Tensor, amount: float) -> None:
    moved = bank[indices] + amount * random_bank(len(indices), bank.shape[1], seed=int(indices[0]))
    bank[indices] = torch.nn.functional.normalize(moved)


@settings(deadline=None, max_examples=25)
@given(st.floats(0.01, 2), st.integers(0, 2**16))
def test_cached_search_never_misses_reciprocity(amount: float, seed: int) -> None:
    bank, cached, exact = random_bank(100, 12, seed), CachedSearch(100, 12, 5, 5), ExactSearch(100, 12, 5, 5)
    cached.initialize(bank)
    for indices in torch.randperm(100, generator=torch.Generator().manual_seed(seed)).split(20):
        move(bank, indices, amount)
        near, expanded = exact(indices, bank)
        cached_near, cached_expanded = cached(indices, bank)
        assert torch.equal(near, cached_near)  # 12 dimensions: the sketch holds them all
        in_turn = (expanded == indices.view(-1, 1, 1)).any(2)
        assert (cached_expanded == indices.view(-1, 1, 1)).any(2)[in_turn].all()
        assert not (cached_expanded == cached_near.unsqueeze(2)).any()
        assert all(len(set(row)) == 5 for row in cached_expanded.flatten(0, 1).tolist())


def test_cached_search_learns_the_lists_of_those_it_visits() -> None:
    bank, everyone = random_bank(300, 12), torch.arange(300)
    cached, exact = CachedSearch(300, 12, 5, 5), ExactSearch(300, 12, 5, 5)
    cached.initialize(bank)
    moved = random_bank(300, 12, seed=1)
    for found, wanted in zip(cached(everyone, moved), exact(everyone, moved), strict=True):
        assert torch.equal(found, wanted)


def test_cached_search_recalls_nearly_all_of_a_slowly_moving_bank() -> None:
    centres = 2 * random_bank(10, 100, seed=1)
    bank = torch.nn.functional.normalize(centres.repeat(60, 1) + random_bank(600, 100))
    cached, exact = CachedSearch(600, 100, 5, 5), ExactSearch(600, 100, 5, 5)
    cached.initialize(bank)
    hits = []
    for indices in torch.randperm(600, generator=torch.Generator().manual_seed(0)).split(50):
        move(bank, indices, 0.2)
        for found, wanted in zip(cached(indices, bank), exact(indices, bank), strict=True):
            hits.append((found.unsqueeze(-1) == wanted.unsqueeze(-2)).any(-1).float().mean())
    assert torch.stack(hits).mean() > 0.8


def test_cached_lists_are_small_and_survive_a_checkpoint() -> None:
    bank, cached = random_bank(80, 12), CachedSearch(80, 12, 5, 3)
    cached.initialize(bank)
    assert cached.lists.dtype == torch.int32
    assert cached.lists.shape == (80, 12)
    restored = CachedSearch(80, 12, 5, 3)
    restored.load_state_dict(cached.state_dict())
    move(bank, torch.arange(40), 0.5)
    for found, wanted in zip(restored(torch.arange(40), bank), cached(torch.arange(40), bank), strict=True):
        assert torch.equal(found, wanted)


def flat_bank(seed: int) -> Tensor:
    """300 features in 64 of 100 dimensions."""
    plane = torch.linalg.qr(random_bank(100, 64, seed))[0]
    return torch.nn.functional.normalize(random_bank(300, 64, seed) @ plane.T)


def test_cached_search_takes_its_directions_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CachedSearch, "REFRESH", 3)
    cached, exact = CachedSearch(300, 100, 5, 5), ExactSearch(300, 100, 5, 5)
    cached.initialize(flat_bank(seed=0))
    bank, indices = flat_bank(seed=1), torch.arange(30)
    wanted = exact(indices, bank)[0]
    assert [torch.equal(cached(indices, bank)[0], wanted) for _ in range(4)] == [False, False, True, True]


def test_when_directions_are_due_survives_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CachedSearch, "REFRESH", 3)
    cached, restored = (CachedSearch(300, 100, 5, 5) for _ in range(2))
    cached.initialize(flat_bank(seed=0))
    bank, indices = flat_bank(seed=1), torch.arange(30)
    for _ in range(2):
        cached(indices, bank)
    restored.load_state_dict(cached.state_dict())
    for found, wanted in zip(restored(indices, bank), cached(indices, bank), strict=True):
        assert torch.equal(found, wanted)
    assert torch.equal(restored.directions, cached.directions)


@pytest.mark.parametrize("search", [ExactSearch, CachedSearch])
def test_autocast_does_not_reach_the_search(search) -> None:
    bank, part = random_bank(200, 12), search(200, 12, 5, 5)
    part.initialize(bank)
    expected = part(torch.arange(30), bank)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        part.initialize(bank)
        found = part(torch.arange(30), bank)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)


def test_as_many_neighbours_as_there_are() -> None:
    with pytest.warns(UserWarning, match="neighbors=9 but a sample has only 3 others"):
        assert available_neighbors("neighbors", 9, 4) == 3
    assert available_neighbors("neighbors", 3, 4) == 3
    with pytest.raises(UserError, match="at least 1"):
        available_neighbors("neighbors", 0, 4)


@pytest.mark.parametrize("sample", [-1, 20])
def test_lists_of_neighbours_out_of_range_are_refused(sample: int) -> None:
    search = CachedSearch(20, 3, 2, 2)
    state = search.state_dict()
    state["lists"] = torch.full_like(state["lists"], sample)
    with pytest.raises(UserError, match="not those of 20 samples"):
        search.load_state_dict(state)
