from __future__ import annotations

import math

import pytest
import torch

from tests.self_training.naive import softmax
from tllib_ancon.errors import UserError
from tllib_ancon.self_training import TemporalEnsemble

INDICES = torch.tensor([2, 0, 1])
LOGITS = torch.tensor([[2.0, 0.0, -1.0], [0.0, 0.5, 0.0], [0.0, 0.0, 3.0]])


def votes_after_one_visit(**options: object) -> torch.Tensor:
    ensemble = TemporalEnsemble(3, 3, **options)
    ensemble(INDICES, LOGITS)
    return ensemble.votes(INDICES)


def confidences() -> list[float]:
    return [max(softmax(row)) for row in LOGITS.tolist()]


def test_uniform_weighting_counts_every_prediction() -> None:
    assert torch.equal(votes_after_one_visit(weighting="uniform"), torch.eye(3)[[0, 1, 2]])


def test_max_probability_weighting() -> None:
    torch.testing.assert_close(votes_after_one_visit(weighting="max-probability").amax(1), torch.tensor(confidences()))


def test_entropy_weighting() -> None:
    expected = [math.exp(sum(p * math.log(p) for p in softmax(row))) for row in LOGITS.tolist()]
    torch.testing.assert_close(votes_after_one_visit(weighting="entropy").amax(1), torch.tensor(expected))


def test_fixed_threshold_weighting() -> None:
    votes = votes_after_one_visit(weighting="fixed", fixed_threshold=0.8)
    assert votes.sum(1).tolist() == [float(c > 0.8) for c in confidences()]


def test_quantile_weighting_keeps_the_most_confident_share() -> None:
    votes = votes_after_one_visit(weighting="quantile", quantile=0.5)
    assert votes.sum(1).tolist() == [float(c >= sorted(confidences())[1]) for c in confidences()]


def test_soft_predictions_are_summed_with_their_temperature() -> None:
    votes = votes_after_one_visit(weighting="uniform", prediction="soft", temperature=0.5)
    expected = [softmax([value / 0.5 for value in row]) for row in LOGITS.tolist()]
    torch.testing.assert_close(votes, torch.tensor(expected))


def test_weights_may_come_from_another_predictive_distribution() -> None:
    ensemble = TemporalEnsemble(3, 3, weighting="max-probability")
    ensemble(INDICES, LOGITS, torch.full((3, 3), 1 / 3))
    torch.testing.assert_close(ensemble.votes(INDICES).sum(1), torch.full((3,), 1 / 3))


def test_normalized_votes_are_a_distribution_or_zero() -> None:
    ensemble = TemporalEnsemble(3, 3, normalize=True)
    for _ in range(3):
        ensemble(INDICES, LOGITS)
    sums = ensemble.read(INDICES).sum(1)
    assert set(sums.tolist()) == {0.0, 1.0}


def test_vote_share_is_that_of_the_last_visit() -> None:
    ensemble = TemporalEnsemble(3, 3)
    ensemble(INDICES, LOGITS)
    share = sum(c >= sum(confidences()) / 3 for c in confidences()) / 3
    assert float(ensemble.vote_share) == pytest.approx(share)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_are_weighed_in_float32(dtype: torch.dtype) -> None:
    ensemble, exact = TemporalEnsemble(3, 3), TemporalEnsemble(3, 3)
    ensemble(INDICES, LOGITS.to(dtype))
    exact(INDICES, LOGITS.to(dtype).float())
    assert ensemble.threshold.dtype == torch.float32
    assert torch.equal(ensemble.threshold, exact.threshold)
    assert torch.equal(ensemble.votes(INDICES), exact.votes(INDICES))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": 1.0}, "beta"),
        ({"convention": "paperr"}, "did you mean 'paper'"),
        ({"weighting": "entropi"}, "did you mean 'entropy'"),
        ({"prediction": "medium"}, "hard"),
        ({"temperature": 0.0}, "temperature"),
        ({"weighting": "quantile", "quantile": 1.5}, "quantile"),
        ({"weighting": "fixed", "fixed_threshold": -0.1}, "threshold"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TemporalEnsemble(3, 3, **options)
