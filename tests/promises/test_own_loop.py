"""What the parts do in a loop of one's own: bad numbers, casts, evaluation mode, wrong arguments."""

import warnings

import pytest
import torch

from tests.support.refusals import REFUSED, refused
from tllib_ancon.self_training import (
    AdaptiveSmoothing,
    AnchoredConfidence,
    EarlyLearningRegularization,
)

WEIGHTINGS = ("relative", "entropy", "max-probability", 0.6)
PARTS = [AnchoredConfidence, AdaptiveSmoothing, EarlyLearningRegularization]


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
        (AnchoredConfidence, {"temperature": 1.0}),
        (AnchoredConfidence, {"convention": "paper"}),
        *((AdaptiveSmoothing, {}), (EarlyLearningRegularization, {})),
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
        assert int(given.ensemble.ignored) == 9
        assert int(alone.ensemble.ignored) == 0


# Casts

CASTS = {
    "half": lambda module: module.half(),
    "double": lambda module: module.double(),
}


@pytest.mark.parametrize("cast", CASTS)
@pytest.mark.parametrize("options", [{}, {"weighting": "entropy"}, {"temperature": 1.0}], ids=str)
@pytest.mark.parametrize("make", PARTS[:2])
def test_votes_keep_their_precision_whatever_the_module_is_cast_to(make, options, cast):
    given = CASTS[cast](make(4, 3, **options))
    exact = make(4, 3, **options)
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


@pytest.mark.parametrize(("indices", "of_indices", "shape", "of_logits", "message"), REFUSED["tensors"])
def test_a_tensor_of_another_form_is_one_line(indices, of_indices, shape, of_logits, message):
    logits = torch.ones(shape, dtype=getattr(torch, of_logits))
    if of_indices is not None:
        indices = torch.tensor(indices, dtype=getattr(torch, of_indices))
    with refused(message):
        AnchoredConfidence(4, 3)(indices, logits)


def test_probabilities_in_place_of_logits_are_told_once():
    ancon = AnchoredConfidence(4, 3)
    indices = torch.arange(4)
    probabilities = (99 * torch.randn(4, 3)).softmax(1)  # some are exactly 0
    with pytest.warns(UserWarning, match="look like probabilities"):
        ancon(indices, probabilities)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ancon(indices, probabilities)
        AnchoredConfidence(4, 3)(indices, torch.randn(4, 3))
        for logits in (probabilities.log(), probabilities / 2, 3 * probabilities - 2 / 3):
            AnchoredConfidence(4, 3)(indices, logits)
        AnchoredConfidence(4, 1)(indices, torch.ones(4, 1))
