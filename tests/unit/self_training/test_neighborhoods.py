"""NRC and AaD equal their equations, and their neighbours are the nearest samples."""

import math

import pytest
import torch

from tests.support.naive import dot, softmax
from tests.support.neighborhoods import MIXINGS, D, K, N, NaiveMemory, losses, mixed, random_visits
from tests.support.refusals import one_line
from tllib_ancon.self_training import AttractingDispersing, NeighborhoodReciprocity


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


@pytest.mark.parametrize("make", [NeighborhoodReciprocity, AttractingDispersing])
def test_a_bad_step(make):
    part = make(N, K, D)
    with one_line("initialize"):
        part(torch.arange(2), torch.randn(2, D), torch.randn(2, K))
    part.initialize(*random_visits(seed=0).first)
    for last, features, logits, anchors, message in [
        (N, D, K, K, "the size of the whole target set, got"),
        (1, D + 1, K, K, "features have shape"),
        (1, D, K + 1, K, "logits have shape"),
        (1, D, K, K + 1, "anchors have shape"),
    ]:
        with one_line(message):
            outputs = [torch.rand(2, width) for width in (features, logits, anchors)]
            part(torch.tensor([0, last]), *outputs)


# The searches
