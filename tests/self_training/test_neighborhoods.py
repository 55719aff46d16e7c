"""NRC and AaD equal their equations, and their neighbours are the nearest samples."""

import math

import pytest
import torch

from tests.self_training.naive import dot, softmax
from tests.self_training.neighborhoods import MIXINGS, D, K, N, NaiveMemory, losses, mixed, random_visits
from tests.support.refusals import one_line
from tllib_ancon.self_training import AttractingDispersing, NeighborhoodReciprocity, neighbors
from tllib_ancon.self_training.neighbors import nearest, nearest_two_fold


def clamp(row):
    return [min(max(p, 1e-4), 1 - 1e-4) for p in row]


def divergence(score, prediction):
    entropy = -sum(s * math.log(s) for s in score)
    return -entropy - dot(score, prediction)


def naive_nrc(visits, mixing, reciprocal=True, weight=0.4):
    """With four neighbours and three of each."""
    memory = NaiveMemory(*visits.first)
    values = []
    for indices, features, logits, anchors in visits.steps:
        memory.update(indices, features, logits)
        predictions = [clamp(softmax(row)) for row in logits.tolist()]
        total = 0.0
        for index, prediction, votes in zip(indices.tolist(), predictions, anchors.tolist(), strict=True):
            for near in memory.nearest(index, 4):
                beyond = memory.nearest(near, 3)
                affinity = float(beyond.count(index)) if reciprocal and index in beyond else 0.1
                total += affinity * divergence(clamp(mixed(mixing, votes, memory.scores[near], weight)), prediction)
                for other in beyond:
                    total += 0.1 * divergence(clamp(mixed(mixing, votes, memory.scores[other], weight)), prediction)
        mean = [sum(column) / len(predictions) for column in zip(*predictions, strict=True)]
        diversity = -sum(m * math.log(m + 1e-5) for m in mean)
        values.append(total / len(predictions) - diversity)
    return values


def naive_aad(visits, mixing, beta, total_steps, weight):
    """With four neighbours."""
    memory = NaiveMemory(*visits.first)
    values = []
    for step, (indices, features, logits, anchors) in enumerate(visits.steps):
        memory.update(indices, features, logits)
        predictions = [softmax(row) for row in logits.tolist()]
        alpha = (1 + 10 * min(step / total_steps, 1)) ** -beta
        total = 0.0
        for i, (index, votes) in enumerate(zip(indices.tolist(), anchors.tolist(), strict=True)):
            for near in memory.nearest(index, 4):
                total -= dot(predictions[i], mixed(mixing, votes, memory.scores[near], weight))
            others = predictions[:i] + predictions[i + 1 :]
            total += alpha * sum(dot(predictions[i], other) for other in others)
        values.append(total / len(predictions))
    return values


@pytest.mark.parametrize("reciprocal", [True, False])
@pytest.mark.parametrize("mixing", MIXINGS)
def test_nrc_against_a_naive_transcription(mixing, reciprocal):
    visits = random_visits(seed=3)
    nrc = NeighborhoodReciprocity(N, K, D, 4, 3, reciprocal=reciprocal, mixing=mixing or "authors", anchor_weight=0.4)
    found = losses(nrc, visits, mixing is not None)
    expected = naive_nrc(visits, mixing, reciprocal)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("beta", "total_steps", "weight"), [(5.0, 8, 0.3), (0.75, 3, 0.6), (0.0, None, 0.3)])
@pytest.mark.parametrize("mixing", MIXINGS)
def test_aad_against_a_naive_transcription(mixing, beta, total_steps, weight):
    visits = random_visits(seed=6)
    aad = AttractingDispersing(N, K, D, 4, beta, total_steps, mixing=mixing or "normalized", anchor_weight=weight)
    found = losses(aad, visits, mixing is not None)
    expected = naive_aad(visits, mixing, beta, total_steps or 1, weight)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_the_gradient_of_aad_against_finite_differences():
    """The memory holds the batch already, and has to stand still."""
    visits = random_visits(seed=3, num_steps=1)
    indices, features, logits, anchors = visits.steps[0]
    aad = AttractingDispersing(N, K, D, beta=0.0)
    losses(aad, visits)
    aad.write = lambda *_: None
    logits.requires_grad_()
    aad(indices, features, logits, anchors).backward()
    for i, k in [(0, 0), (3, 2), (11, 3)]:
        step = torch.zeros_like(logits.detach())
        step[i, k] = 1e-2
        up = aad(indices, features, logits.detach() + step, anchors)
        down = aad(indices, features, logits.detach() - step, anchors)
        slope = float(up - down) / 2e-2
        assert float(logits.grad[i, k]) == pytest.approx(slope, abs=2e-4)


def test_as_many_neighbours_as_there_are():
    with pytest.warns(UserWarning, match="neighbors=5 but a sample has only 2 others") as warned:
        nrc = NeighborhoodReciprocity(3, K, D, neighbors=5, expanded_neighbors=2)
    assert len(warned) == 1
    nrc.initialize(torch.arange(3), torch.randn(3, D), torch.randn(3, K))
    assert nrc(torch.tensor([2]), torch.randn(1, D), torch.randn(1, K)).isfinite()


def test_a_bad_first_pass():
    for count, shift, width, message in [
        (N - 1, 0, D, f"{N - 1} of {N} samples"),
        (0, 0, D, f"0 of {N} samples"),
        (N, 1, D, "outside"),
        (N, 0, D + 1, "features have shape"),
    ]:
        given = torch.arange(count) + shift, torch.randn(count, width), torch.randn(count, K)
        with one_line(message):
            NeighborhoodReciprocity(N, K, D).initialize(*given)


@pytest.mark.parametrize("make", [NeighborhoodReciprocity, AttractingDispersing])
def test_a_bad_step(make):
    part = make(N, K, D)
    with one_line("initialize"):
        part(torch.arange(2), torch.randn(2, D), torch.randn(2, K))
    part.initialize(*random_visits(seed=0).first)
    for last, features, logits, anchors, message in [
        (N, D, K, K, "outside"),
        (1, D + 1, K, K, "features have shape"),
        (1, D, K + 1, K, "logits have shape"),
        (1, D, K, K + 1, "anchors have shape"),
    ]:
        with one_line(message):
            outputs = [torch.rand(2, width) for width in (features, logits, anchors)]
            part(torch.tensor([0, last]), *outputs)


# The searches


def random_bank(num_samples, feature_dim, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(num_samples, feature_dim, generator=generator))


@pytest.mark.parametrize("memory_budget", [1, 10_000, 2**30])
def test_neighbours_of_neighbours_also_where_each_counts_as_distinct(memory_budget, monkeypatch):
    """As it does on an accelerator."""
    bank = random_bank(700, 16)
    indices = torch.randperm(700)[:32]
    near = nearest(bank[indices], bank, 5, indices)
    expanded = torch.stack([nearest(bank[row], bank, 4, row) for row in near])
    monkeypatch.setattr(neighbors, "BUDGET", memory_budget)
    for _ in range(2):
        found = nearest_two_fold(indices, bank, 5, 4)
        assert all(map(torch.equal, found, (near, expanded)))
        every_one = lambda near: (near.flatten(), torch.arange(near.numel()).view_as(near))  # noqa: E731
        monkeypatch.setattr(neighbors, "_distinct", every_one)


def test_products_stay_within_the_memory_budget(monkeypatch):
    sizes = []
    mm = torch.mm

    def measured(*matrices, out):
        sizes.append(out.nbytes)
        return mm(*matrices, out=out)

    monkeypatch.setattr(torch, "mm", measured)
    monkeypatch.setattr(neighbors, "BUDGET", 30_000)
    nearest_two_fold(torch.arange(50), random_bank(640, 8), 5, 5)
    assert len(sizes) > 2
    assert max(sizes) <= 30_000


def test_a_copy_is_a_neighbour_and_the_sample_itself_never_is():
    bank = random_bank(70, 8)
    bank[:3] = bank[0]
    bank[5] = 0
    near, expanded = nearest_two_fold(torch.arange(70), bank, 4, 4)
    assert set(near[0, :2].tolist()) == {1, 2}
    assert not (near == torch.arange(70).unsqueeze(1)).any()
    assert not (expanded == near.unsqueeze(2)).any()
