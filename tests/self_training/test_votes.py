import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tllib_ancon.self_training.ensemble import Votes

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
def test_votes_sum_as_a_dictionary_does(batches: list[list[tuple[int, int, float]]], weighted: bool) -> None:
    store = Votes(SAMPLES, CLASSES, weighted=weighted)
    batches = [[(*vote, weight / 4 if weighted else weight) for *vote, weight in batch] for batch in batches]
    expected = torch.zeros(SAMPLES, CLASSES)
    for batch in batches:
        cast(store, batch)
        for index, label, weight in batch:
            expected[index, label] += weight
        assert torch.equal(store.read(torch.arange(SAMPLES)), expected)


def test_votes_of_office_31_and_of_an_imagenet_sized_set_take_two_bytes_each() -> None:
    for num_samples, num_classes in ((2817, 31), (50_000, 1000)):
        counts = Votes(num_samples, num_classes).counts
        assert counts.numel() * counts.element_size() == 2 * num_samples * num_classes
