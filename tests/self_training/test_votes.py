import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import REFUSED
from tllib_ancon.errors import UserError
from tllib_ancon.self_training.ensemble import LARGEST_DENSE_NUM_CLASSES, DenseVotes, SparseVotes, TemporalEnsemble

SAMPLES, CLASSES = 7, 40

visits = st.lists(
    st.lists(
        st.tuples(st.integers(0, SAMPLES - 1), st.integers(0, CLASSES - 1), st.sampled_from([0, 1])),
        min_size=1,
        max_size=12,
    ),
    max_size=30,
)


def cast(store: torch.nn.Module, batch: list[tuple[int, int, float]]) -> None:
    indices, classes, weights = zip(*batch, strict=True)
    store.add(torch.tensor(indices), torch.tensor(classes), torch.tensor(weights, dtype=torch.float32))


@settings(max_examples=60, deadline=None)
@given(visits, st.booleans())
def test_dense_and_sparse_sum_as_a_dictionary_does(batches: list[list[tuple[int, int, float]]], weighted: bool) -> None:
    dense, sparse = (store(SAMPLES, CLASSES, weighted=weighted) for store in (DenseVotes, SparseVotes))
    batches = [[(*vote, weight / 4 if weighted else weight) for *vote, weight in batch] for batch in batches]
    expected = torch.zeros(SAMPLES, CLASSES)
    for batch in batches:
        cast(dense, batch)
        cast(sparse, batch)
        for index, label, weight in batch:
            expected[index, label] += weight
        everything = torch.arange(SAMPLES)
        assert torch.equal(dense.read(everything), expected)
        assert torch.equal(sparse.read(everything), expected)


def test_sparse_store_widens_when_a_sample_outgrows_its_slots_and_not_before() -> None:
    """Classes that are repeated and predictions that do not vote take no further slot."""
    store = SparseVotes(3, 30_000)
    for step in range(100):
        cast(store, [(index, step % 3, 1) for index in range(3)])
        cast(store, [(index, step, 0) for index in range(3)])
    assert (store.counts.shape[1], store.read(torch.arange(3)).sum()) == (4, 300)
    for label in range(1000, 30_000, 1000):
        cast(store, [(1, label, 1)])
    assert store.read(torch.tensor([1])).nonzero()[:, 1].tolist() == [0, 1, 2, *range(1000, 30_000, 1000)]
    assert store.read(torch.tensor([0, 2])).sum() == 200
    assert store.counts.shape[1] <= 36


@pytest.mark.parametrize("store_type", [DenseVotes, SparseVotes])
def test_counts_beyond_the_small_integers_stay_exact(store_type: type) -> None:
    store = store_type(1, 300)
    for _ in range(400):
        store.add(torch.zeros(180, dtype=torch.long), torch.full((180,), 299), torch.ones(180))
    assert store.read(torch.tensor([0]))[0, 299] == 72_000


def test_sparse_memory_of_an_imagenet_sized_set() -> None:
    store = SparseVotes(50_000, 1000)
    generator = torch.Generator().manual_seed(0)
    favourites = torch.randint(1000, (50_000, 4), generator=generator)
    for _ in range(20):
        for indices in torch.randperm(50_000, generator=generator).split(1000):
            choice = torch.randint(4, (len(indices), 1), generator=generator)
            store.add(indices, favourites[indices].gather(1, choice)[:, 0], torch.ones(len(indices)))
    assert store.read(torch.arange(100)).sum() == 2000
    assert sum(buffer.nbytes for buffer in store.buffers()) <= 8e6


def test_auto_is_dense_for_few_classes_and_sparse_for_many() -> None:
    assert isinstance(TemporalEnsemble(10, LARGEST_DENSE_NUM_CLASSES).store, DenseVotes)
    assert isinstance(TemporalEnsemble(10, LARGEST_DENSE_NUM_CLASSES + 1).store, SparseVotes)


@pytest.mark.parametrize(("classes", "counts"), REFUSED["sparse votes"])
def test_sparse_votes_that_no_visits_lead_to_are_refused(classes: list[int], counts: list[int]) -> None:
    store = SparseVotes(SAMPLES, CLASSES)
    state = store.state_dict() | {
        "classes": torch.tensor(classes, dtype=torch.int16).expand(SAMPLES, -1),
        "counts": torch.tensor(counts, dtype=torch.int32).expand(SAMPLES, -1),
    }
    with pytest.raises(UserError, match="the loaded votes"):
        store.load_state_dict(state)
