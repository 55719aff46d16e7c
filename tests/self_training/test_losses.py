"""Losses beside their equations in plain Python, or beside the values that the authors' code gave."""

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.self_training.naive import dot, softmax
from tests.support.refusals import one_line
from tllib_ancon import methods
from tllib_ancon.self_training import (
    EarlyLearningRegularization,
    NeighborhoodReciprocity,
    SampleEfficientEntropy,
    cross_entropy,
    generalized_cross_entropy,
    information_maximization,
    softmax_entropy,
)
from tllib_ancon.self_training.mc_dropout import mc_dropout_probabilities
from tllib_ancon.self_training.pseudo_label import belief_matching_loss


def naive_gce(logits, target, q):
    return (1 - dot(softmax(logits), target) ** q) / q


def digamma(x):
    """By recurrence to a large argument and the asymptotic series."""
    if x < 12:
        return digamma(x + 1) - 1 / x
    series = 1 / (12 * x**2) - 1 / (120 * x**4) + 1 / (252 * x**6)
    return math.log(x) - 1 / (2 * x) - series


def naive_belief_matching(logits, target, coefficient):
    alpha = [math.exp(value) for value in logits]
    expectations = [digamma(a) - digamma(sum(alpha)) for a in alpha]
    likelihood = dot(target, expectations)
    divergence = math.lgamma(sum(alpha)) - math.lgamma(len(alpha))
    for a, expectation in zip(alpha, expectations, strict=True):
        divergence += (a - 1) * expectation - math.lgamma(a)
    assert divergence > -1e-9
    return coefficient * divergence - likelihood


def rows(low, high):
    row = st.lists(st.floats(low, high, width=32), min_size=3, max_size=3)
    return st.lists(row, min_size=4, max_size=4)


@given(rows(-20, 20), rows(0, 5), st.floats(0.05, 1))
def test_gce_against_a_naive_transcription(logits, targets, q):
    expected = torch.tensor([naive_gce(*row, q) for row in zip(logits, targets, strict=True)])
    for reduction, reduce in (("none", torch.clone), ("mean", torch.mean), ("sum", torch.sum)):
        found = generalized_cross_entropy(torch.tensor(logits), torch.tensor(targets), q, reduction)
        torch.testing.assert_close(found, reduce(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["ce", "gce", "elr", "nrc", "nrc_ancon"])
def test_losses_as_recorded_from_the_authors_code(golden, name):
    num_samples, num_classes, feature_dim = (int(golden[size]) for size in "NKD")
    elr = EarlyLearningRegularization(num_samples, num_classes)
    nrc = NeighborhoodReciprocity(num_samples, num_classes, feature_dim, reciprocal=False)
    first_features = torch.from_numpy(golden["features_init"])
    first_logits = torch.from_numpy(golden["logits_init"])
    nrc.initialize(torch.arange(num_samples), first_features, first_logits)
    losses = {
        "ce": lambda step, logits: cross_entropy(logits, step["smooth"]),
        "gce": lambda step, logits: generalized_cross_entropy(logits, step["smooth"]),
        "elr": lambda step, logits: elr(step["idx"], logits),
        "nrc": lambda step, logits: nrc(step["idx"], step["features"], logits),
        "nrc_ancon": lambda step, logits: nrc(step["idx"], step["features"], logits, step["y_bar_before"]),
    }
    for number in range(int(golden["steps"])):
        step = {key: torch.as_tensor(value[number]) for key, value in golden.items() if value.ndim}
        found = losses[name](step, step["logits"].requires_grad_())
        found.backward()
        torch.testing.assert_close(found.detach(), step[name], rtol=1e-5, atol=0)
        if name != "nrc_ancon":
            atol = 1e-8 if name in ("gce", "elr") else 1e-7
            torch.testing.assert_close(step["logits"].grad, step[f"{name}_grad"], rtol=1e-5, atol=atol)


@pytest.mark.parametrize("q", [0.01, 0.8, 1.0])
def test_gce_of_an_agreement_that_underflows(q):
    logits = torch.tensor([[0.0, 200.0]], requires_grad=True)
    loss = generalized_cross_entropy(logits, torch.tensor([[1.0, 0.0]]), q)
    slope = math.exp(-200 * q)
    assert float(loss.detach()) == pytest.approx((1 - slope) / q, rel=1e-5)
    loss.backward()
    torch.testing.assert_close(logits.grad, torch.tensor([[-slope, slope]]), rtol=1e-4, atol=1e-30)
    loss = generalized_cross_entropy(logits, torch.zeros(1, 2), q)  # of a target without mass
    assert float(loss.detach()) == pytest.approx(1 / q)
    assert torch.equal(torch.autograd.grad(loss, logits)[0], torch.zeros(1, 2))


@given(rows(-4, 5), rows(0, 2), st.floats(0, 1))
def test_belief_matching_against_a_naive_transcription(logits, targets, coefficient):
    expected = sum(naive_belief_matching(*row, coefficient) for row in zip(logits, targets, strict=True)) / 4
    found = belief_matching_loss(torch.tensor(logits), torch.tensor(targets), coefficient)
    assert float(found) == pytest.approx(expected, rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("size", [30.0, 1e3, 6e4])
def test_belief_matching_is_finite_for_any_logits(size):
    logits = torch.tensor([[size, -size, 0.0]], requires_grad=True)
    for classes in (0, 1, 2):
        loss = belief_matching_loss(logits, torch.tensor([classes]))
        assert loss.isfinite()
        assert torch.autograd.grad(loss, logits)[0].isfinite().all()


@pytest.mark.parametrize(("name", "options"), [("self-training", {}), ("ancon", {"smoothing": 0.0})])
def test_belief_matching_replaces_the_cross_entropy(name, options):
    given = {"confidence": "belief-matching", "belief_coefficient": 0.5, **options}
    logits = torch.randn(5, 3)
    method = methods.create(name, num_samples=5, num_classes=3, **given)
    loss = method(torch.arange(5), logits, torch.zeros(5, 1))
    torch.testing.assert_close(loss, belief_matching_loss(logits, logits.argmax(1), 0.5))


@pytest.mark.parametrize("loss", [generalized_cross_entropy, belief_matching_loss])
def test_targets_are_weights_without_gradient_or_classes(loss):
    logits = torch.randn(5, 4, requires_grad=True)
    classes = torch.tensor([3, 0, 1, 1, 2])
    weights = nn.functional.one_hot(classes, 4).float().requires_grad_()
    found = loss(logits, weights)
    found.backward()
    assert logits.grad is not None
    assert weights.grad is None
    for dtype in (torch.int64, torch.int32):
        assert torch.equal(loss(logits, classes.to(dtype)), found)
    for precision in (torch.float16, torch.bfloat16):
        half = logits.detach().to(precision)
        torch.testing.assert_close(loss(half, classes), loss(half.float(), classes))


@given(st.lists(st.lists(st.floats(-20, 20, width=32), min_size=3, max_size=3), min_size=1, max_size=6))
def test_information_maximization_against_a_naive_transcription(logits):
    def entropy(row):
        return -sum(p * math.log(p + 1e-5) for p in row)

    predictions = [softmax(row) for row in logits]
    mean = [sum(row[k] for row in predictions) / len(logits) for k in range(3)]
    found = information_maximization(torch.tensor(logits))
    mean_entropy = sum(map(entropy, predictions)) / len(logits)
    assert float(found) == pytest.approx(mean_entropy - entropy(mean), abs=1e-5)
    assert -math.log(3) - 1e-4 <= float(found) <= 1e-4
    prior = [0.6, 0.4, 0.0]
    log_prior = [math.log(3 * (p + 1e-5)) for p in prior]
    expected = float(found) - dot(mean, log_prior)
    with_prior = information_maximization(torch.tensor(logits), prior=torch.tensor(prior))
    assert float(with_prior) == pytest.approx(expected, abs=1e-4)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_dropout_is_the_mean_over_few_passes_whose_generator_leaves_the_global_one_alone():
    features = torch.randn(4, 3)
    head = nn.Linear(3, 5)
    masks = generator(7)
    drawn = [torch.empty(4, 3).bernoulli_(0.5, generator=masks) for _ in range(3)]
    before = torch.get_rng_state()
    found = mc_dropout_probabilities(features.requires_grad_(), head, passes=3, generator=generator(7))
    assert torch.equal(torch.get_rng_state(), before)
    passes = torch.stack([head(features * mask * 2) for mask in drawn])
    expected = passes.softmax(2).mean(0).detach()
    torch.testing.assert_close(found, expected)
    assert not found.requires_grad
    half = mc_dropout_probabilities(features.half(), nn.Linear(3, 5).half(), passes=3)
    assert half.dtype == torch.float32
    assert not torch.equal(torch.get_rng_state(), before)


L = torch.zeros(2, 3)
ZEROS = torch.zeros(2, 3)
CLASSES = torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("loss", "arguments", "options", "message"),
    [
        (generalized_cross_entropy, (L, ZEROS), {"q": 1.5}, "`q` must be above 0 and at most 1, got 1.5"),
        (generalized_cross_entropy, (L, ZEROS), {"q": 0}, "`q` must be above 0 and at most 1, got 0"),
        (
            generalized_cross_entropy,
            (L, ZEROS),
            {"reduction": "men"},
            "unknown value of `reduction`: 'men'; did you mean 'mean'? Valid names: mean, none, sum",
        ),
        (generalized_cross_entropy, (L, torch.zeros(2, 4)), {}, "targets have shape"),
        (generalized_cross_entropy, (L, torch.zeros(2)), {}, "dtype torch.float32"),
        (generalized_cross_entropy, (L, [0, 1]), {}, "targets are a list"),
        (generalized_cross_entropy, (L, torch.tensor([0, 3])), {}, "outside"),
        (generalized_cross_entropy, (torch.zeros(3), torch.zeros(3)), {}, "logits have shape"),
        (belief_matching_loss, (L, CLASSES), {"coefficient": -1.0}, "coefficient"),
        (information_maximization, (torch.zeros(3),), {}, "logits have shape"),
        (softmax_entropy, (torch.zeros(3),), {}, "logits have shape"),
        (SampleEfficientEntropy(4), (L,), {}, "expected (batch, 4"),
        (mc_dropout_probabilities, (L, nn.Linear(3, 5)), {"p": 1.0}, "`p` must be at least 0 and below 1, got 1.0"),
        (mc_dropout_probabilities, (L, nn.Linear(3, 5)), {"passes": 0}, "`passes` must be at least 1, got 0"),
        (mc_dropout_probabilities, (torch.zeros(2, 3, 1, 1), nn.Linear(3, 5)), {}, "features have shape"),
    ],
)
def test_what_is_refused(loss, arguments, options, message):
    with one_line(re.escape(message)):
        loss(*arguments, **options)
