from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.self_training.naive import NaiveAnCon
from tllib_ancon.errors import UserError
from tllib_ancon.self_training import AnchoredConfidence, cross_entropy
from tllib_ancon.self_training.pseudo_label import one_hot

CONVENTIONS = ("authors", "paper")


@st.composite
def visit_sequences(draw: st.DrawFn) -> tuple[int, int, list[tuple[list[int], list[list[float]]]]]:
    """Batches of any size over few samples: repeated visits, within a batch too, ties within a row, one-class and
    one-sample batches."""
    samples, classes = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    value = st.integers(-8, 8).map(lambda n: n / 4) | st.integers(-4096, 4096).map(lambda n: n / 1024)
    row = st.lists(value, min_size=classes, max_size=classes)
    batches = []
    for _ in range(draw(st.integers(1, 8))):
        indices = draw(st.lists(st.integers(0, samples - 1), min_size=1, max_size=8))
        batches.append((indices, [draw(row) for _ in indices]))
    return samples, classes, batches


@settings(max_examples=80, deadline=None)
@given(
    visit_sequences(),
    st.sampled_from(CONVENTIONS),
    st.sampled_from(["dense", "sparse"]),
    st.booleans(),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([0.0, 0.5, 0.9]),
)
def test_against_the_naive_transcription(sequence, convention, storage, normalize, smoothing, beta) -> None:
    samples, classes, batches = sequence
    ancon = AnchoredConfidence(samples, classes, smoothing, beta, convention, storage, normalize=normalize)
    naive = NaiveAnCon(classes, smoothing, beta, convention, normalize)
    for indices, logits in batches:
        targets = ancon(torch.tensor(indices), torch.tensor(logits))
        expected = naive.visit(indices, logits)
        assert float(ancon.threshold) == pytest.approx(naive.threshold(), rel=1e-5)
        if len(naive.batch_means) > 1 or len(indices) > 1:
            assume(not _decides_by_rounding(naive.threshold(), logits))
        torch.testing.assert_close(targets, torch.tensor(expected), rtol=1e-5, atol=1e-6)


def _decides_by_rounding(threshold: float, logits: list[list[float]]) -> bool:
    """Whether a confidence is so near δ that float32 and Python may order them differently."""
    confidences = torch.tensor(logits, dtype=torch.float64).softmax(1).amax(1)
    return bool(((confidences - threshold).abs() < 1e-6).any())


@pytest.mark.parametrize(("convention", "votes"), [("authors", 1.0), ("paper", 0.0)])
def test_a_confidence_equal_to_the_threshold_votes_in_the_authors_convention_only(convention, votes) -> None:
    ancon = AnchoredConfidence(1, 2, beta=0.0, convention=convention)
    ancon(torch.tensor([0]), torch.tensor([[1.0, 0.0]]))
    assert ancon.ensemble.votes(torch.tensor([0])).sum() == votes


def test_first_threshold_of_each_convention() -> None:
    logits = torch.tensor([[0.0, 0.0], [0.0, 0.0]])
    authors, paper = (AnchoredConfidence(2, 2, convention=convention) for convention in CONVENTIONS)
    authors(torch.arange(2), logits)
    paper(torch.arange(2), logits)
    assert float(authors.threshold) == pytest.approx(0.5)
    assert float(paper.threshold) == pytest.approx(0.05)


def test_the_authors_convention_excludes_the_current_prediction() -> None:
    ancon = AnchoredConfidence(1, 3)
    first = ancon(torch.tensor([0]), torch.tensor([[3.0, 0.0, 0.0]]))
    second = ancon(torch.tensor([0]), torch.tensor([[4.0, 0.0, 0.0]]))
    torch.testing.assert_close(first, torch.tensor([[0.7, 0.0, 0.0]]))
    torch.testing.assert_close(second, torch.tensor([[1.0, 0.0, 0.0]]))


@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_values_recorded_from_the_authors_code(golden: dict[str, np.ndarray], storage: str) -> None:
    ancon = AnchoredConfidence(int(golden["N"]), int(golden["K"]), storage=storage)
    for step in range(int(golden["steps"])):
        indices = torch.from_numpy(golden["idx"][step])
        logits = torch.from_numpy(golden["logits"][step]).requires_grad_()
        expected = {name: torch.from_numpy(golden[name][step : step + 1]) for name in ("delta", "ce")}
        close = {"rtol": 1e-5, "atol": 1e-7}
        torch.testing.assert_close(
            ancon.ensemble.votes(indices), torch.from_numpy(golden["y_bar_before"][step]), **close
        )
        targets = ancon(indices, logits)
        torch.testing.assert_close(targets, torch.from_numpy(golden["smooth"][step]), **close)
        torch.testing.assert_close(ancon.threshold[None], expected["delta"], **close)
        loss = cross_entropy(logits, targets)
        torch.testing.assert_close(loss.detach()[None], expected["ce"], **close)
        loss.backward()
        torch.testing.assert_close(logits.grad, torch.from_numpy(golden["ce_grad"][step]), **close)
    everything = torch.arange(int(golden["N"]))
    assert torch.equal(ancon.ensemble.votes(everything), torch.from_numpy(golden["y_bar_final"]))


def test_no_smoothing_is_plain_self_training_bit_for_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    ancon = AnchoredConfidence(20, 6, smoothing=0.0)
    for _ in range(5):
        indices, logits = torch.randperm(20, generator=generator)[:8], torch.randn(8, 6, generator=generator)
        assert torch.equal(ancon(indices, logits), one_hot(logits.argmax(1), 6))


def test_the_papers_equations_to_the_letter() -> None:
    """Eq. 1-3 with w in the simplex: three visits of one sample, by hand."""
    ancon = AnchoredConfidence(1, 2, smoothing=0.25, beta=0.5, convention="paper", normalize=True)
    targets = []
    for label, confidence in ((0, 0.9), (1, 0.6), (1, 0.8)):
        logits = torch.zeros(1, 2)
        logits[0, label] = math.log(confidence / (1 - confidence))
        targets.append(ancon(torch.tensor([0]), logits)[0].tolist())
    assert float(ancon.threshold) == pytest.approx(0.6625)  # δ = 0.45, 0.525, 0.6625: all three vote
    assert targets == [pytest.approx(row) for row in ([1.0, 0.0], [0.125, 0.875], [1 / 12, 11 / 12])]


def test_full_smoothing_is_the_ensemble_alone() -> None:
    ancon = AnchoredConfidence(2, 3, smoothing=1.0)
    logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    ancon(torch.arange(2), logits)
    assert torch.equal(ancon(torch.arange(2), logits), torch.eye(3)[:2])


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("constant", [0.3] * 5), ("full", [0.0, 0.25, 0.5, 0.75, 1.0]), ("half", [0.0, 0.5, 1.0, 1.0, 1.0])],
)
def test_schedules(schedule: str, expected: list[float]) -> None:
    ancon = AnchoredConfidence(1, 2, schedule=schedule, total_steps=4)
    smoothings = []
    for _ in expected:
        smoothings.append(float(ancon.smoothing))
        ancon(torch.tensor([0]), torch.zeros(1, 2))
    assert smoothings == pytest.approx(expected)


@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_int32_indices_are_those_of_int64(storage: str) -> None:
    short, long = AnchoredConfidence(3, 3, storage=storage), AnchoredConfidence(3, 3, storage=storage)
    for indices in torch.tensor([[0, 2], [2, 1], [1, 1]]):
        logits = torch.randn(2, 3)
        assert torch.equal(short(indices.int(), logits), long(indices, logits))


def test_an_empty_batch_changes_nothing() -> None:
    ancon = AnchoredConfidence(2, 3)
    ancon(torch.arange(2), torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
    threshold = ancon.threshold.clone()
    assert ancon(torch.zeros(0, dtype=torch.long), torch.zeros(0, 3)).shape == (0, 3)
    assert torch.equal(ancon.threshold, threshold)


def test_probabilities_of_another_shape_are_refused() -> None:
    with pytest.raises(UserError, match="probabilities have shape"):
        AnchoredConfidence(2, 3)(torch.arange(2), torch.zeros(2, 3), probabilities=torch.zeros(2, 4))


def test_pseudo_labels_may_be_given() -> None:
    targets = AnchoredConfidence(1, 3)(torch.tensor([0]), torch.tensor([[5.0, 0.0, 0.0]]), torch.tensor([2]))
    assert targets.argmax(1).item() == 2


def test_targets_carry_no_gradient() -> None:
    logits = torch.randn(2, 3, requires_grad=True)
    assert not AnchoredConfidence(2, 3)(torch.arange(2), logits).requires_grad


def test_order_of_storage_does_not_matter() -> None:
    generator = torch.Generator().manual_seed(1)
    renamed = torch.randperm(30, generator=generator)
    first, second = AnchoredConfidence(30, 4), AnchoredConfidence(30, 4)
    for _ in range(6):
        indices, logits = torch.randperm(30, generator=generator)[:10], torch.randn(10, 4, generator=generator)
        assert torch.equal(first(indices, logits), second(renamed[indices], logits))


@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_a_saved_state_continues_as_if_it_had_not_stopped(storage: str) -> None:
    generator = torch.Generator().manual_seed(2)
    options = {"storage": storage, "schedule": "half", "total_steps": 20}
    first, second = (AnchoredConfidence(12, 9, **options) for _ in range(2))
    steps = [(torch.randperm(12, generator=generator)[:5], torch.randn(5, 9, generator=generator)) for _ in range(20)]
    for step in steps[:10]:
        first(*step)
    second.load_state_dict(first.state_dict())
    for step in steps[10:]:
        assert torch.equal(first(*step), second(*step))


def test_one_class_and_one_sample() -> None:
    ancon = AnchoredConfidence(1, 1)
    for expected in (0.7, 1.0, 1.3):
        target = ancon(torch.tensor([0]), torch.zeros(1, 1))
        assert float(target) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("indices", "logits", "message"),
    [
        (torch.tensor([0, 4]), torch.zeros(2, 3), r"index 4 is outside \[0, 4\)"),
        (torch.tensor([-1, 0]), torch.zeros(2, 3), r"index -1 is outside"),
        (torch.tensor([0]), torch.zeros(2, 3), "indices have shape"),
        (torch.tensor([0, 1]), torch.zeros(2, 5), "logits have shape"),
        (torch.tensor([0.0, 1.0]), torch.zeros(2, 3), "int64"),
        (torch.tensor([True, False]), torch.zeros(2, 3), "int64"),
        (torch.tensor([0, 1, 0, 1], dtype=torch.uint8), torch.zeros(4, 3), "dtype torch.uint8; expected int64"),
        (torch.tensor([0, 1], dtype=torch.int16), torch.zeros(2, 3), "dtype torch.int16; expected int64"),
    ],
)
def test_bad_visits(indices: torch.Tensor, logits: torch.Tensor, message: str) -> None:
    with pytest.raises(UserError, match=message):
        AnchoredConfidence(4, 3)(indices, logits)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"smoothing": 1.5}, "smoothing"),
        ({"schedule": "hal"}, "did you mean 'half'"),
        ({"schedule": "full"}, "total_steps"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        AnchoredConfidence(4, 3, **options)
