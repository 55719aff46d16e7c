"""NRC and AaD equal their equations, and their neighbours are the nearest samples."""

import pytest
import torch
from torch.nn.functional import normalize

from tests.support.refusals import one_line
from tllib_ancon.self_training import AttractingDispersing, NeighborhoodReciprocity

N = 40
K = 4
D = 6


class Visits:
    """One pass over N samples and five batches that overlap, with anchors; a third of their rows has no vote."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.first = (torch.arange(N), self.normal(N, D), 2 * self.normal(N, K))
        self.steps = [self.step() for _ in range(5)]

    def normal(self, *shape):
        return torch.randn(*shape, generator=self.generator)

    def step(self):
        indices = torch.randperm(N, generator=self.generator)[:12]
        votes = self.normal(12, K).abs().mul(2).floor()
        votes[::3] = 0
        return indices, self.normal(12, D), 2 * self.normal(12, K), votes

    def losses(self, part, anchored):
        part.initialize(*self.first)
        return torch.stack([part(*step[:3], step[3] if anchored else None) for step in self.steps])


class NaiveMemory:
    """Features of length 1 and predictions, in double precision."""

    def __init__(self, visits):
        self.features = torch.zeros(N, D).double()
        self.scores = torch.zeros(N, K).double()
        self.update(*visits.first)

    def update(self, indices, features, logits):
        self.features[indices] = normalize(features.double())
        self.scores[indices] = logits.double().softmax(1)

    def nearest(self, index, k):
        similarities = self.features @ self.features[index]
        similarities[index] = -torch.inf
        return similarities.argsort(descending=True)[:k].tolist()


def ignored(votes, scores):
    return scores


def raw(votes, scores):
    return 0.4 * votes + 0.6 * scores


def normalized(votes, scores):
    if not votes.any():
        return scores
    return raw(votes / votes.sum(), scores)


def clamp(probabilities):
    return probabilities.clamp(1e-4, 1 - 1e-4)


def naive_nrc(visits, mixed, reciprocal):
    """With four neighbours and three of each."""
    memory = NaiveMemory(visits)
    for indices, features, logits, anchors in visits.steps:
        memory.update(indices, features, logits)
        predictions = clamp(logits.double().softmax(1))
        mean = predictions.mean(0)
        loss = (mean * (mean + 1e-5).log()).sum()
        for index, prediction, votes in zip(indices.tolist(), predictions, anchors, strict=True):
            for near in memory.nearest(index, 4):
                expanded = memory.nearest(near, 3)
                affinity = 1.0 if reciprocal and index in expanded else 0.1
                for sample, weight in zip([near, *expanded], [affinity, 0.1, 0.1, 0.1], strict=True):
                    scores = clamp(mixed(votes, memory.scores[sample]))
                    loss += weight * (scores * (scores.log() - prediction)).sum() / len(indices)
        yield loss


def naive_aad(visits, mixed, beta, total_steps):
    """With four neighbours."""
    memory = NaiveMemory(visits)
    for step, (indices, features, logits, anchors) in enumerate(visits.steps):
        memory.update(indices, features, logits)
        predictions = logits.double().softmax(1)
        products = predictions @ predictions.T
        alpha = (1 + 10 * min(step / total_steps, 1)) ** -beta
        loss = alpha * (products.sum() - products.trace())
        for index, prediction, votes in zip(indices.tolist(), predictions, anchors, strict=True):
            for near in memory.nearest(index, 4):
                loss -= prediction @ mixed(votes, memory.scores[near]).double()
        yield loss / len(indices)


@pytest.mark.parametrize("reciprocal", [True, False])
@pytest.mark.parametrize("mixed", [ignored, raw])
def test_nrc_against_a_naive_transcription(mixed, reciprocal):
    visits = Visits(seed=3)
    nrc = NeighborhoodReciprocity(N, K, D, 4, 3, reciprocal, anchor_weight=0.4)
    expected = torch.stack([*naive_nrc(visits, mixed, reciprocal)]).float()
    torch.testing.assert_close(visits.losses(nrc, mixed is not ignored), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("beta", "total_steps"), [(5.0, 8), (0.0, None)])
@pytest.mark.parametrize("mixed", [ignored, normalized])
def test_aad_against_a_naive_transcription(mixed, beta, total_steps):
    visits = Visits(seed=6)
    aad = AttractingDispersing(N, K, D, 4, beta, total_steps, anchor_weight=0.4)
    expected = torch.stack([*naive_aad(visits, mixed, beta, total_steps or 1)]).float()
    torch.testing.assert_close(visits.losses(aad, mixed is not ignored), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [NeighborhoodReciprocity, AttractingDispersing])
def test_a_bad_step(make):
    part = make(N, K, D, neighbors=2 * N)  # at most all others are neighbours
    with one_line(
        r"^the whole target set has not been seen yet: call initialize\(indices, features, logits\) with one"
    ):
        part(torch.arange(2), torch.randn(2, D), torch.randn(2, K))
    with one_line("^the pass holds 2 of 40 samples; make it over the whole target set, with drop_last=False$"):
        part.initialize(torch.arange(2), torch.randn(2, D), torch.randn(2, K))
    part.initialize(*Visits(seed=0).first)
    assert part(torch.arange(2), torch.randn(2, D), torch.randn(2, K)).isfinite()
    outputs = torch.rand(2, D), torch.rand(2, K), torch.rand(2, K + 1)
    with one_line("anchors have shape"):
        part(torch.tensor([0, 1]), *outputs)
