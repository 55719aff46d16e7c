"""Losses of a stream's methods beside naive versions in plain Python."""

import math

import pytest
import torch
from torch.nn.functional import cosine_similarity

from tllib_ancon.self_training.streams import stream_method

K = 3
GENERATOR = torch.Generator().manual_seed(0)
LOGITS = 2 * torch.randn(6, K, generator=GENERATOR)
SECOND = torch.randn(6, K, generator=GENERATOR)
AVERAGE = torch.tensor([0.6, 0.3, 0.1])
FIRST_VIEW = LOGITS.softmax(1).tolist()
SECOND_VIEW = SECOND.softmax(1).tolist()
MEANS = [sum(row[k] for row in FIRST_VIEW) / 6 for k in range(K)]


def moved(average):
    return [0.9 * average[k] + 0.1 * MEANS[k] for k in range(K)]


def class_weighted(average):
    frequencies = moved(average)
    total = 0.0
    for first, second in zip(FIRST_VIEW, SECOND_VIEW, strict=True):
        label = max(range(K), key=lambda k: first[k] + second[k])
        weight = min(1 / (K * frequencies[label]), 3)
        total -= weight * (math.log(first[label]) + math.log(second[label])) / 2
    return total / 6


def scaled(values):
    return [(value - min(values)) / (max(values) - min(values)) for value in values]


def roid(average):
    diversity = [1 - float(cosine_similarity(torch.tensor(row), torch.tensor(average), 0)) for row in FIRST_VIEW]
    certainty = scaled([sum(p * math.log(p) for p in row) for row in FIRST_VIEW])
    weights = [math.exp(3 * d * c) for d, c in zip(scaled(diversity), certainty, strict=True)]
    kept = [weight * (d >= sum(diversity) / 6) for weight, d in zip(weights, diversity, strict=True)]
    total = 0.0
    for weight, first, second in zip(kept, FIRST_VIEW, SECOND_VIEW, strict=True):
        clipped = [min(p, 0.99) for p in first]
        ratio = -sum(p * math.log(p / (1 - p)) for p in clipped)
        cross = -sum(s * math.log(f) + f * math.log(s) for f, s in zip(first, second, strict=True)) / 2
        total += weight * (ratio + cross)
    return total / 6


@pytest.mark.parametrize(("name", "naive"), [("stream-auto", class_weighted), ("roid", roid)])
def test_the_loss_and_the_average_of_a_batch(name, naive):
    before = AVERAGE.tolist()
    loss, after = stream_method(name).step(LOGITS, AVERAGE, lambda: SECOND)
    assert float(loss) == pytest.approx(naive(before), rel=1e-4)
    assert after.tolist() == pytest.approx(moved(before), rel=1e-4)


def test_roid_corrects_predictions_by_the_class_prior_of_the_batch():
    smoothing = (1 / K) / max(MEANS)
    for row, corrected in zip(FIRST_VIEW, stream_method("roid").predictions(LOGITS).exp().tolist(), strict=True):
        raised = [p * (q + smoothing) for p, q in zip(row, MEANS, strict=True)]
        assert corrected == pytest.approx([value / sum(raised) for value in raised], rel=1e-4)
