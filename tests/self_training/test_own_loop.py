"""What the parts do in a loop of one's own: bad numbers, casts, evaluation mode, wrong arguments."""

import warnings
from functools import partial

import pytest
import torch
from torch import nn

from tests.conftest import REFUSED
from tests.self_training.neighborhoods import D, K, N, losses, random_visits
from tests.support.refusals import one_line, refused
from tllib_ancon import self_training
from tllib_ancon.self_training import (
    AdaptiveSmoothing,
    AnchoredConfidence,
    EarlyLearningRegularization,
    NeighborhoodReciprocity,
)

WEIGHTINGS = ("relative", "entropy", "max-probability", "quantile", "fixed", "uniform")
UniformSmoothing = partial(AdaptiveSmoothing, class_prior="uniform")
PARTS = [AnchoredConfidence, UniformSmoothing, EarlyLearningRegularization]


def state(module):
    return {name: tensor.clone() for name, tensor in module.named_buffers()}


def same(one, other):
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


# Rows that are not finite


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize(
    ("make", "options"),
    [
        *((AnchoredConfidence, {"weighting": weighting}) for weighting in WEIGHTINGS),
        (AnchoredConfidence, {"prediction": "soft"}),
        (AnchoredConfidence, {"convention": "paper"}),
        *((UniformSmoothing, {}), (EarlyLearningRegularization, {})),
    ],
    ids=str,
)
def test_a_row_that_is_not_finite_changes_nothing_and_is_counted(make, options, bad):
    """The other rows of the batch go on as if it were not there, and so does a batch without any."""
    given = make(6, 3, **options)
    alone = make(6, 3, **options)
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        indices = torch.randperm(6, generator=generator)[:5]
        logits = 2 * torch.randn(5, 3, generator=generator)
        damaged = logits.clone()
        damaged[0, 1] = bad
        targets = given(indices, damaged)
        expected = alone(indices[1:], logits[1:])
        if make is not EarlyLearningRegularization:  # which gives a loss
            torch.testing.assert_close(targets[1:], expected)
    given(indices, logits * torch.nan)
    for name, tensor in state(alone).items():
        if "ignored" not in name:
            torch.testing.assert_close(state(given)[name], tensor, msg=name)
    if make is AnchoredConfidence:
        assert int(given.ignored) == 9
        assert int(alone.ignored) == 0


def test_which_rows_are_not_finite():
    """One whose predictive distribution is not, but not one where a class has the logit -infinity."""
    ancon = AnchoredConfidence(2, 3, weighting="uniform")
    probabilities = torch.full((2, 3), 1 / 3)
    probabilities[0, 2] = torch.nan
    logits = torch.tensor([[0.0] * 3, [2.0, -torch.inf, 0.0]])
    ancon(torch.arange(2), logits, probabilities=probabilities)
    votes = ancon.ensemble.votes(torch.arange(2))
    assert votes.tolist() == [[0, 0, 0], [1, 0, 0]]
    assert int(ancon.ignored) == 1


def test_a_row_that_is_not_finite_stays_out_of_the_memory():
    visits = random_visits(seed=3)
    nrc = NeighborhoodReciprocity(N, K, D, 4, 3)
    nrc.initialize(*visits.first)
    indices, features, logits, _ = visits.steps[0]
    before = nrc.features[indices[0]].clone()
    features[0, 1] = torch.inf
    logits[1, 0] = torch.nan
    nrc(indices, features, logits)
    assert nrc.features.isfinite().all()
    assert nrc.scores.isfinite().all()
    assert torch.equal(nrc.features[indices[0]], before)
    with one_line("the pass holds features or logits that are not finite"):
        nrc.initialize(torch.arange(N), torch.full((N, D), torch.inf), visits.first[2])


# Casts

CASTS = {
    "half": lambda module: module.half(),
    "double": lambda module: module.double(),
    "within another": lambda module: nn.Sequential(module).to(torch.float16)[0],
}


@pytest.mark.parametrize("cast", CASTS)
def test_the_memory_and_targets_of_early_learning_keep_their_precision(cast):
    visits = random_visits(seed=3)
    given, exact = (NeighborhoodReciprocity(N, K, D, 4, 3) for _ in range(2))
    assert torch.equal(losses(CASTS[cast](given), visits), losses(exact, visits))
    elr = CASTS[cast](EarlyLearningRegularization(3, 4))
    assert given.features.dtype == elr.targets.dtype == torch.float32


@pytest.mark.parametrize("cast", CASTS)
@pytest.mark.parametrize("options", [{}, {"weighting": "entropy"}, {"prediction": "soft"}], ids=str)
@pytest.mark.parametrize("make", PARTS[:2])
def test_votes_keep_their_precision_whatever_the_module_is_cast_to(make, options, cast):
    given, exact = (make(4, 3, **options) for _ in range(2))
    given = CASTS[cast](given)
    assert {tensor.dtype for tensor in given.buffers()} <= {torch.float32, torch.int16, torch.int64}
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.float32):
        logits = torch.randn(4, 3, generator=generator).to(dtype)
        assert torch.equal(given(torch.arange(4), logits), exact(torch.arange(4), logits))
    assert same(state(given), state(exact))


# Evaluation mode


@pytest.mark.parametrize(
    ("make", "options"),
    [
        *((make, {}) for make in PARTS[:2]),
        (AnchoredConfidence, {"schedule": "full", "total_steps": 9}),
        (EarlyLearningRegularization, {}),
    ],
)
def test_in_evaluation_mode_a_visit_reads_and_changes_nothing(make, options):
    generator = torch.Generator().manual_seed(0)
    module = make(5, 3, **options)
    indices = torch.arange(5)
    for _ in range(3):
        module(indices, torch.randn(5, 3, generator=generator))
    before = state(module)
    logits = torch.randn(5, 3, generator=generator)
    first = module.eval()(indices, logits)
    assert torch.equal(module(indices, logits), first)
    assert same(before, state(module))
    module.train()(indices, logits)
    assert not same(before, state(module))


# Wrong arguments


def test_probabilities_in_place_of_logits_are_told_once():
    ancon = AnchoredConfidence(4, 3)
    indices = torch.arange(4)
    probabilities = torch.randn(4, 3).softmax(1)
    with pytest.warns(UserWarning, match="look like probabilities"):
        ancon(indices, probabilities)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ancon(indices, probabilities)
        AnchoredConfidence(4, 3)(indices, torch.randn(4, 3))
        AnchoredConfidence(4, 3)(indices, probabilities.log())
        AnchoredConfidence(4, 1)(indices, torch.ones(4, 1))


FIRST = torch.tensor([0, 1])
LOGITS = torch.zeros(2, 3)
EXPECTED = "expected (batch, 3) of a floating type"
POSITIONS = "num_samples must be the size of the whole target set and every index the position of its image in it"


@pytest.mark.parametrize(
    ("indices", "logits", "message"),
    [
        ([0, 1], LOGITS, "indices are a list; expected a torch.Tensor, e.g. torch.as_tensor(indices)"),
        (FIRST, [[0.0] * 3] * 2, "logits are a list; expected a torch.Tensor, e.g. torch.as_tensor(logits)"),
        (FIRST, LOGITS.long(), f"logits have shape (2, 3) and dtype torch.int64; {EXPECTED}"),
        (torch.tensor(0), torch.zeros(3), "logits have shape (3,); expected (batch, classes)"),
        (FIRST, torch.zeros(2, 5), f"logits have shape (2, 5) and dtype torch.float32; {EXPECTED}"),
        (FIRST[:1], LOGITS, "indices have shape (1,); expected (2,), one per row of logits"),
        (torch.tensor([0, 4]), LOGITS, f"index 4 is outside [0, 4): {POSITIONS}"),
        (torch.tensor([-1, 0]), LOGITS, f"index -1 is outside [0, 4): {POSITIONS}"),
        (FIRST.float(), LOGITS, "indices have dtype torch.float32; expected int64 or int32"),
    ],
)
def test_visits_of_other_types(indices, logits, message):
    for make in PARTS:
        with refused(message):
            make(4, 3)(indices, logits)


NEIGHBORHOODS = ("NeighborhoodReciprocity", "AttractingDispersing")


@pytest.mark.parametrize(("makes", "options", "message"), REFUSED["parts"])
def test_what_no_part_is_made_with(makes, options, message):
    for make in makes:
        sizes = {"num_samples": 4, "num_classes": 3} | ({"feature_dim": 2} if make in NEIGHBORHOODS else {})
        with refused(message):
            getattr(self_training, make)(**{**sizes, **options})


def test_other_arguments_of_a_visit():
    ancon = AnchoredConfidence(2, 3)
    with refused("probabilities have shape (2, 4); expected (2, 3)"):
        ancon(torch.arange(2), torch.zeros(2, 3), probabilities=torch.zeros(2, 4))


# States


def test_a_state_of_another_number_of_classes_is_refused():
    large = AnchoredConfidence(4, 300)
    small = AnchoredConfidence(4, 40)
    with pytest.raises(RuntimeError, match="size mismatch"):
        small.load_state_dict(large.state_dict())
