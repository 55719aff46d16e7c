"""The criteria of the second round beside their definitions."""

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.do_no_harm.criteria import ALL, asr_resets, dropout_agreement, ensv, mano, mixing_pairs, mixval
from tests.selection.naive import Rows, argmax, naive_dropout_agreement, naive_entropy
from tests.selection.test_criteria import random_logits
from tests.self_training.naive import softmax

SETTINGS = settings(max_examples=40, deadline=None)
problems = st.tuples(st.integers(1, 5), st.integers(2, 12), st.integers(2, 6), st.integers(0, 10**6))


def naive_mano(logits: Rows, order: float = 4, threshold: float = 5.0) -> float:
    num_samples, num_classes = len(logits), len(logits[0])
    divergence = 0.0
    for row in logits:
        log_sum = max(row) + math.log(sum(math.exp(value - max(row)) for value in row))
        divergence -= sum(value - log_sum for value in row) / num_classes / num_samples
    total = 0.0
    for row in logits:
        if divergence > threshold:
            normalised = softmax(row)
        else:
            expanded = [1 + value + value**2 / 2 for value in row]
            shifted = [value - min(expanded) for value in expanded]
            normalised = [value / max(sum(shifted), 1e-12) for value in shifted]
        total += sum(value**order for value in normalised)
    return total ** (1 / order) / (num_samples * num_classes) ** (1 / order)


def naive_ensv(pool: Sequence[Rows]) -> list[float]:
    num_samples = len(pool[0])
    ensemble = [
        argmax([sum(column) for column in zip(*(model[i] for model in pool), strict=True)]) for i in range(num_samples)
    ]
    return [sum(argmax(model[i]) == ensemble[i] for i in range(num_samples)) / num_samples for model in pool]


def naive_asr_resets(pool: Sequence[Rows], momentum: float = 0.15, initial: float = 0.5) -> list[bool]:
    """The authors' loop over steps, an epoch a step."""
    num_samples, num_classes = len(pool[0]), len(pool[0][0])
    cumulative = math.log(num_classes * initial)
    resets = []
    for outputs in pool:
        entropy = naive_entropy(softmax([sum(column) / num_samples for column in zip(*outputs, strict=True)]))
        flipped = sum(argmax(now) != argmax(then) for now, then in zip(outputs, pool[0], strict=True)) / num_samples
        weight = momentum * flipped + 1 - momentum
        if entropy < cumulative:
            resets.append(True)
            cumulative = math.log(num_classes * initial)
        else:
            resets.append(False)
            cumulative = weight * cumulative + (1 - weight) * entropy
    return resets


def naive_mixval(mixed: Rows, predictions: Sequence[int], first: Sequence[int], second: Sequence[int]) -> float:
    """Mean of the two shares of the authors' two scripts, whose label is the argmax of the mixed one-hot labels."""
    shares = []
    for same in (True, False):
        chosen = [m for m in range(len(mixed)) if (predictions[first[m]] == predictions[second[m]]) == same]
        hits = [argmax(mixed[m]) == predictions[first[m]] for m in chosen]
        shares.append(sum(hits) / len(hits) if hits else 0.0)
    return sum(shares) / 2


@given(problem=problems)
@SETTINGS
def test_ensv_equals_its_definition(problem: tuple[int, int, int, int]) -> None:
    pool = random_logits(*problem).softmax(2)
    assert ensv(list(pool)) == pytest.approx(naive_ensv(pool.tolist()))


@given(problem=problems, scale=st.sampled_from([0.5, 5.0, 50.0]))
@SETTINGS
def test_asr_equals_its_authors_loop(problem: tuple[int, int, int, int], scale: float) -> None:
    pool = random_logits(*problem, scale=scale)
    assert asr_resets(list(pool)) == naive_asr_resets(pool.tolist())


@given(problem=problems)
@SETTINGS
def test_agreement_and_mixval_equal_their_definitions(problem: tuple[int, int, int, int]) -> None:
    logits = random_logits(problem[0] + 1, *problem[1:])
    probabilities, passes = logits[0].softmax(1), logits[1:].softmax(2)
    expected = naive_dropout_agreement(probabilities.tolist(), passes.tolist())
    assert dropout_agreement(probabilities, passes) == pytest.approx(expected)
    predictions = logits[0].argmax(1)
    first, second = mixing_pairs(predictions, torch.Generator().manual_seed(problem[3]))
    mixed = 0.55 * logits[0][first] + 0.45 * logits[1][second]
    expected = naive_mixval(mixed.tolist(), predictions.tolist(), first.tolist(), second.tolist())
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


@given(problem=problems, scale=st.sampled_from([0.1, 1.0, 10.0, 40.0]))
@SETTINGS
def test_mano_equals_its_authors_formula(problem: tuple[int, int, int, int], scale: float) -> None:
    logits = random_logits(1, *problem[1:], scale=scale)[0]
    assert mano(logits) == pytest.approx(naive_mano(logits.tolist()), rel=1e-10, abs=1e-12)
    for threshold in (0.0, 100.0):
        expected = naive_mano(logits.tolist(), 2, threshold)
        assert mano(logits, 2, threshold) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("name", ALL)
def test_what_was_not_stored_has_no_score(name: str) -> None:
    pool = [{"logits": logits} for logits in random_logits(4, 9, 3, seed=0)]
    missing = [math.isnan(score) for score in ALL[name].scores(pool)]
    assert missing == [name in ("aetta", "dropout_agreement", "mixval")] * 4
