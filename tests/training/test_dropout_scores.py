"""The score under dropout is AETTA's, for the source model alone, and draws no random number of the caller."""

import pytest
import torch
from torch import nn

from tests.selection import naive
from tests.training.small import adapt
from tllib_ancon.training import epoch_scores
from tllib_ancon.training.epoch_scores import DROPOUT_PASSES, DROPOUT_PROBABILITY, scores_under_dropout
from tllib_ancon.training.inference import Outputs

HEAD = nn.Linear(6, 3)


def predictions(samples=20):
    features = torch.randn(samples, 6, generator=torch.Generator().manual_seed(1))
    return Outputs(torch.arange(samples), features, HEAD(features).detach())


def test_against_a_naive_transcription_that_draws_nothing_else():
    given = predictions()
    generator = torch.Generator().manual_seed(0)
    before = torch.get_rng_state()
    dropped = []
    for _ in range(DROPOUT_PASSES):
        mask = torch.empty(20, 6).bernoulli_(1 - DROPOUT_PROBABILITY, generator=generator)
        dropped.append(HEAD(given.features * mask / (1 - DROPOUT_PROBABILITY)).softmax(1).tolist())
    expected = naive.naive_aetta(given.logits.softmax(1).tolist(), dropped)
    for _ in range(2):
        assert scores_under_dropout(given, HEAD) == {"aetta": pytest.approx(expected, rel=1e-5)}
    assert torch.equal(torch.get_rng_state(), before)


def test_many_samples_are_represented_by_some(monkeypatch):
    taken = []

    def head(features):
        taken.append(len(features))
        return HEAD(features)

    monkeypatch.setattr(epoch_scores, "MOST_SAMPLES", 50)
    few = scores_under_dropout(predictions(200), head)["aetta"]
    monkeypatch.setattr(epoch_scores, "MOST_SAMPLES", 200)
    assert few == pytest.approx(scores_under_dropout(predictions(200), HEAD)["aetta"], abs=0.2)
    assert taken == [50] * DROPOUT_PASSES


def test_the_source_model_alone_has_the_score_and_only_with_a_head():
    result = adapt(images=40, hold_out=0.4)
    assert [("aetta" in line) for line in result.metrics[:2]] == [True, False]
    headless = nn.Sequential(nn.Conv2d(3, 3, 4), nn.BatchNorm2d(3), nn.Flatten()).eval()
    assert "aetta" not in adapt(headless, adapted="all").metrics[0]
