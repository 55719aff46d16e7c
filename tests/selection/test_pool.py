from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.selection import naive
from tllib_ancon.errors import UserError
from tllib_ancon.selection import aetta, asr_resets, dropout_agreement, ensv, mixing_pairs, mixval

SETTINGS = settings(max_examples=40, deadline=None)
problems = st.tuples(st.integers(1, 5), st.integers(2, 12), st.integers(2, 6), st.integers(0, 10**6))


def random_logits(models: int, samples: int, classes: int, seed: int, scale: float = 3.0) -> torch.Tensor:
    """(M, N, K); models resemble each other."""
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(1, samples, classes, generator=generator)
    own = torch.randn(models, samples, classes, generator=generator)
    return scale * (shared + own).double()


@given(problem=problems)
@SETTINGS
def test_ensv_equals_its_definition(problem: tuple[int, int, int, int]) -> None:
    pool = random_logits(*problem).softmax(2)
    assert ensv(list(pool)) == pytest.approx(naive.naive_ensv(pool.tolist()))


def test_ensv_follows_the_majority() -> None:
    right, wrong = torch.eye(3), torch.eye(3)[[1, 2, 0]]
    assert ensv([right, right, wrong]) == [1.0, 1.0, 0.0]
    assert ensv([wrong]) == [1.0]


@given(problem=problems, scale=st.sampled_from([0.5, 5.0, 50.0]))
@SETTINGS
def test_asr_equals_its_authors_loop(problem: tuple[int, int, int, int], scale: float) -> None:
    pool = random_logits(*problem, scale=scale)
    assert asr_resets(list(pool)) == naive.naive_asr_resets(pool.tolist())


def test_asr_triggers_at_the_collapse_and_starts_anew_after_it() -> None:
    diverse, collapsed = 5 * torch.eye(4), 50 * torch.eye(4)[[0, 0, 0, 0]]
    assert asr_resets([diverse, diverse, collapsed, diverse, collapsed]) == [False, False, True, False, True]


@given(problem=problems)
@SETTINGS
def test_dropout_and_aetta_equal_their_definitions(problem: tuple[int, int, int, int]) -> None:
    logits = random_logits(problem[0] + 1, *problem[1:])
    probabilities, passes = logits[0].softmax(1), logits[1:].softmax(2)
    rows, dropped = probabilities.tolist(), passes.tolist()
    assert dropout_agreement(probabilities, passes) == pytest.approx(naive.naive_dropout_agreement(rows, dropped))
    assert aetta(probabilities, passes) == pytest.approx(naive.naive_aetta(rows, dropped), rel=1e-10)
    assert aetta(probabilities, passes, alpha=0) == pytest.approx(naive.naive_aetta(rows, dropped, 0), rel=1e-10)


def test_aetta_distrusts_a_model_that_says_few_classes() -> None:
    agreeing = torch.eye(4).repeat(2, 1)
    assert aetta(agreeing, agreeing[None]) == 1
    collapsed = torch.eye(4)[[0] * 8]
    other = collapsed.clone()
    other[0] = torch.tensor([0.0, 1.0, 0.0, 0.0])
    assert dropout_agreement(collapsed, other[None]) == 7 / 8
    assert aetta(collapsed, other[None]) == pytest.approx(1 / 4)
    assert aetta(collapsed, collapsed[None]) == 1
    assert aetta(other, collapsed[None]) == pytest.approx(1 / 4)


@given(problem=problems)
@SETTINGS
def test_mixval_equals_its_definition(problem: tuple[int, int, int, int]) -> None:
    logits = random_logits(2, *problem[1:])
    predictions = logits[0].argmax(1)
    first, second = mixing_pairs(predictions, torch.Generator().manual_seed(problem[3]))
    mixed = 0.55 * logits[0][first] + 0.45 * logits[1][second]
    expected = naive.naive_mixval(mixed.tolist(), predictions.tolist(), first.tolist(), second.tolist())
    assert mixval(mixed, predictions, first, second) == pytest.approx(expected)


@given(classes=st.lists(st.integers(0, 3), min_size=1, max_size=20), seed=st.integers(0, 1000))
@SETTINGS
def test_pairs_are_of_one_class_or_of_two_and_never_of_one_image(classes: list[int], seed: int) -> None:
    predictions = torch.tensor(classes)
    first, second = mixing_pairs(predictions, torch.Generator().manual_seed(seed))
    assert (first != second).all()
    same = predictions[first] == predictions[second]
    sizes = predictions.bincount()
    assert int(same.sum()) == int((sizes - 1).clamp(min=0).sum())
    assert bool((~same).any()) == (len(set(classes)) > 1)


def test_mixval_takes_a_collapsed_model_for_a_bad_one() -> None:
    predictions = torch.zeros(6, dtype=torch.long)
    first, second = mixing_pairs(predictions)
    assert mixval(torch.eye(3)[predictions[first]], predictions, first, second) == 0.5


UNIFORM = torch.full((2, 3), 1 / 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ensv([]), "same samples and classes"),
        (lambda: ensv([UNIFORM, UNIFORM[:1]]), "same samples and classes"),
        (lambda: ensv([UNIFORM, 2 * UNIFORM]), "does not sum to 1"),
        (lambda: asr_resets([]), "same samples and classes"),
        (lambda: asr_resets([torch.full((2, 3), math.nan)]), "not finite"),
        (lambda: asr_resets([UNIFORM], momentum=1.5), "momentum 1.5"),
        (lambda: asr_resets([UNIFORM], initial=0.1), "must be at least 1"),
        (lambda: dropout_agreement(UNIFORM, UNIFORM), r"give \(T, N, K\)"),
        (lambda: dropout_agreement(UNIFORM, torch.zeros(0, 2, 3)), r"give \(T, N, K\)"),
        (lambda: aetta(UNIFORM, 2 * UNIFORM[None]), "does not sum to 1"),
        (lambda: aetta(UNIFORM, UNIFORM[None], alpha=-1), "alpha is -1"),
        (lambda: aetta(UNIFORM, UNIFORM[None], alpha=math.nan), "alpha is nan"),
        (lambda: mixing_pairs(torch.zeros(0, dtype=torch.long)), "give classes"),
        (lambda: mixing_pairs(torch.zeros(3)), "give classes"),
        (lambda: mixval(UNIFORM, torch.tensor([0]), torch.tensor([0]), torch.tensor([0, 0])), "first has shape"),
        (lambda: mixval(UNIFORM, torch.tensor([0]), torch.tensor([0, 1]), torch.tensor([0, 0])), "outside 0 to 0"),
        (lambda: mixval(UNIFORM[:0], torch.tensor([0]), torch.tensor([]), torch.tensor([])), "logits have shape"),
    ],
)
def test_bad_input_is_named(call, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()
