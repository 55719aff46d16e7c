from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import tllib_ancon
from tests.selection import naive
from tllib_ancon.errors import UserError
from tllib_ancon.training import dropout_scores
from tllib_ancon.training.dropout_scores import PASSES, PROBABILITY, scores_under_dropout
from tllib_ancon.training.passes import Predictions

HEAD = nn.Linear(6, 3)


def predictions(samples: int = 20) -> Predictions:
    features = torch.randn(samples, 6, generator=torch.Generator().manual_seed(1))
    return Predictions(torch.arange(samples), features, HEAD(features).detach())


def test_against_a_naive_transcription() -> None:
    given, generator = predictions(), torch.Generator().manual_seed(0)
    dropped = []
    for _ in range(PASSES):
        mask = torch.empty(20, 6).bernoulli_(1 - PROBABILITY, generator=generator)
        dropped.append(HEAD(given.features * mask / (1 - PROBABILITY)).softmax(1).tolist())
    expected = naive.naive_aetta(given.logits.softmax(1).tolist(), dropped)
    assert scores_under_dropout(given, HEAD) == {"aetta": pytest.approx(expected, rel=1e-5)}


def test_it_draws_no_other_random_number_and_is_the_same_again() -> None:
    before = torch.get_rng_state()
    given = predictions()
    assert scores_under_dropout(given, HEAD) == scores_under_dropout(given, HEAD)
    assert torch.equal(torch.get_rng_state(), before)
    assert scores_under_dropout(given, None) == {}


def test_many_samples_are_represented_by_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropout_scores, "MOST_SAMPLES", 50)
    taken: list[int] = []

    def head(features: Tensor) -> Tensor:
        taken.append(len(features))
        return HEAD(features)

    few = scores_under_dropout(predictions(200), head)["aetta"]  # type: ignore[arg-type]
    monkeypatch.setattr(dropout_scores, "MOST_SAMPLES", 200)
    assert few == pytest.approx(scores_under_dropout(predictions(200), HEAD)["aetta"], abs=0.2)
    assert taken == [50] * PASSES


def test_every_epoch_has_a_score_that_can_choose(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).eval()
    images = TensorDataset(torch.randn(40, 3, 4, 4, generator=torch.Generator().manual_seed(0)))
    quick = {"epochs": 3, "batch_size": 4, "workers": 0, "quiet": True, "criterion": "aetta", "hold_out": 0.4}
    result = tllib_ancon.adapt(model, images, **quick)
    scores = [line["aetta"] for line in result.metrics]
    assert len(scores) == 4
    assert all(1 / 3 <= score <= 1 for score in scores)
    assert result.summary["selected"]["aetta"] == max(scores[1:])


def test_a_network_without_a_head_cannot_be_chosen_by_it() -> None:
    torch.manual_seed(0)
    headless = nn.Sequential(nn.Conv2d(3, 3, 4), nn.BatchNorm2d(3), nn.Flatten()).eval()
    images = TensorDataset(torch.randn(24, 3, 4, 4))
    settings = {"epochs": 1, "batch_size": 4, "workers": 0, "quiet": True, "adapted": "all"}
    assert "aetta" not in tllib_ancon.adapt(headless, images, **settings).metrics[-1]
    with pytest.raises(UserError, match="`criterion=aetta` drops features before the head"):
        tllib_ancon.adapt(headless, images, **settings, criterion="aetta")
