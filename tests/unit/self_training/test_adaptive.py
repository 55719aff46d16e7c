"""The targets of ``ancon-auto`` and its class prior are those of the equations, and do no harm to a good model."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import REFUSED, refused
from tllib_ancon import methods
from tllib_ancon.self_training import AdaptiveSmoothing, estimate_class_prior

SAMPLES = 6
CLASSES = 3
SIZES = {"num_samples": SAMPLES, "num_classes": CLASSES, "feature_dim": 2, "total_steps": 3}


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=8), st.sampled_from([0.0, 0.5, 0.9]))
def test_this_visit_counts_as_one_more_vote(draws, beta):
    adaptive = AdaptiveSmoothing(SAMPLES, CLASSES, beta=beta)
    for draw in draws:
        generator = torch.Generator().manual_seed(draw)
        indices = torch.randperm(SAMPLES, generator=generator)[:4]
        logits = 3 * torch.randn(4, CLASSES, generator=generator)
        counts = adaptive.ensemble.votes(indices) + torch.eye(CLASSES)[logits.argmax(1)]
        torch.testing.assert_close(adaptive(indices, logits), counts / counts.sum(1, keepdim=True))


def test_the_shares_follow_the_targets_from_their_estimate_and_a_prior_that_is_known_stays():
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(SAMPLES, CLASSES, generator=generator)
    features = torch.randn(SAMPLES, 2, generator=generator)
    indices = torch.arange(SAMPLES)
    method = methods.create("ancon-auto", **SIZES)
    method.begin_epoch(0, indices, features, logits)
    start = estimate_class_prior(logits)
    assert torch.equal(method.prior, start)
    method(indices, logits, features)
    shares = torch.bincount(logits.argmax(1), minlength=CLASSES) / SAMPLES
    decay = max(0.9, 1 - SAMPLES / (10 * CLASSES))
    torch.testing.assert_close(method.class_shares.shares, decay * start + (1 - decay) * shares)
    uniform = methods.create("ancon-auto", **SIZES, class_prior="uniform")
    assert not uniform.needs_pass(0)
    uniform(indices, logits, features)
    torch.testing.assert_close(uniform.class_shares.shares, torch.full((CLASSES,), 1 / CLASSES))


def test_a_prior_from_a_file(tmp_path):
    file = tmp_path / "prior.txt"
    file.write_text("10, 30\n60\n")
    resolved = methods.all_options("shot+ancon-auto", {"class_prior": str(file)})
    assert resolved["class_prior"] == (10.0, 30.0, 60.0)
    assert methods.all_options("shot+ancon-auto", resolved) == resolved
    method = methods.create("shot+ancon-auto", num_samples=4, num_classes=3, feature_dim=2, **resolved)
    torch.testing.assert_close(method.prior, torch.tensor([0.1, 0.3, 0.6]))


@pytest.mark.parametrize(("content", "message"), REFUSED["priors"])
def test_bad_files(tmp_path, content, message):
    file = tmp_path / "prior.txt"
    if content is not None:
        file.write_text(content)
    with refused(message, ROOT=tmp_path):
        methods.create("ancon-auto", num_samples=4, num_classes=3, class_prior=str(file))


@given(counts=st.lists(st.integers(0, 9), min_size=2, max_size=6).filter(any), shrinkage=st.floats(0, 1))
def test_the_estimate_lies_between_the_counts_and_equal_classes(counts, shrinkage):
    """However sure the predictions are."""
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    probabilities = torch.eye(len(counts))[labels]
    expected = (1 - shrinkage) * torch.tensor(counts) / sum(counts) + shrinkage / len(counts)
    torch.testing.assert_close(estimate_class_prior(probabilities, shrinkage), expected)
    torch.testing.assert_close(estimate_class_prior((probabilities / 7).softmax(1), shrinkage), expected)


def test_two_views_add_information_maximisation_towards_the_running_shares_and_one_view_adds_nothing():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(SAMPLES, CLASSES, generator=generator)
    second_logits = torch.randn(SAMPLES, CLASSES, generator=generator)
    features = torch.randn(SAMPLES, 2, generator=generator)

    def visited(second_view, **options):
        method = methods.create("ancon-auto", **SIZES, **options)
        method.begin_epoch(0, torch.arange(SAMPLES), features, logits)
        return method(torch.arange(SAMPLES), logits, features, second_view), method.class_shares.shares

    both_views = (second_logits, features)
    without, _ = visited(both_views, infomax_coefficient=0)
    for coefficient in (1.0, 0.5):
        loss, shares = visited(both_views, infomax_coefficient=coefficient)
        probabilities = torch.cat([logits, second_logits]).softmax(1)
        mean = probabilities.mean(0)
        entropy = -(probabilities * (probabilities + 1e-5).log()).sum(1).mean()
        divergence = (mean * ((mean + 1e-5) / (CLASSES * (shares + 1e-5))).log()).sum()
        torch.testing.assert_close(loss - without, coefficient * (entropy + divergence))
    one_view, _ = visited(None)
    torch.testing.assert_close(one_view, visited(None, infomax_coefficient=0)[0])
