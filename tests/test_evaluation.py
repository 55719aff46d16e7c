import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refused
from tllib_ancon.measures.evaluation import (
    accuracy,
    accuracy_by_votes,
    confusion_matrix,
    expected_calibration_error,
    mean_class_accuracy,
    per_class_accuracy,
    reliability_diagram_data,
    summarize,
)

problems = st.tuples(st.integers(1, 40), st.integers(2, 7), st.integers(0, 10**6))


def random_problem(num_samples: int, num_classes: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(num_samples, num_classes, generator=generator)
    return logits, torch.randint(num_classes, (num_samples,), generator=generator)


def naive_ece(probabilities: torch.Tensor, labels: torch.Tensor, num_bins: int) -> float:
    """The definition, with the edges as float32 holds them."""
    edges = np.linspace(0, 1, num_bins + 1).astype(np.float32)
    bins: dict[int, list[tuple[float, bool]]] = {}
    for row, label in zip(probabilities.float().tolist(), labels.tolist(), strict=True):
        confidence = max(row)
        g = max(g for g in range(num_bins) if edges[g] <= np.float32(confidence))
        bins.setdefault(g, []).append((confidence, row.index(confidence) == label))
    total = 0.0
    for members in bins.values():
        conf = sum(c for c, _ in members) / len(members)
        acc = sum(hit for _, hit in members) / len(members)
        total += len(members) / len(labels) * abs(acc - conf)
    return total


@given(problem=problems)
def test_samples_are_counted_by_label_and_prediction(problem: tuple[int, int, int]) -> None:
    logits, labels = random_problem(*problem)
    num_classes, predictions = problem[1], logits.argmax(dim=1)
    naive = [[0] * num_classes for _ in range(num_classes)]
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        naive[label][row.index(max(row))] += 1
    hits = sum(naive[k][k] for k in range(num_classes))
    assert (
        accuracy(logits, labels) == accuracy(logits.softmax(dim=1), labels) == pytest.approx(100 * hits / len(labels))
    )
    assert confusion_matrix(predictions, labels, num_classes).tolist() == naive
    expected = [100 * row[k] / sum(row) if sum(row) else math.nan for k, row in enumerate(naive)]
    by_class = per_class_accuracy(predictions, labels, num_classes).tolist()
    assert by_class == pytest.approx(expected, nan_ok=True)
    mean = mean_class_accuracy(predictions, labels, num_classes)  # also where a class is predicted that no label has
    assert mean == pytest.approx(np.nanmean(expected))
    summary = summarize(logits, labels, num_classes)
    assert (summary["accuracy"], summary["mean_class_accuracy"]) == (accuracy(logits, labels), mean)
    assert summary["ece"] == expected_calibration_error(logits.softmax(dim=1), labels, 15)
    assert summary["per_class_accuracy"] == [None if math.isnan(value) else value for value in by_class]
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    other = summarize(logits[order], labels[order], num_classes)
    assert summary.pop("ece") == pytest.approx(other.pop("ece"), abs=1e-6)
    assert summary == other


@pytest.mark.parametrize("num_bins", [1, 10, 15])
@given(problem=problems)
def test_ece_equals_the_definition(num_bins: int, problem: tuple[int, int, int]) -> None:
    logits, labels = random_problem(*problem)
    probabilities = logits.softmax(dim=1)
    expected = naive_ece(probabilities, labels, num_bins)
    assert expected_calibration_error(probabilities, labels, num_bins) == pytest.approx(expected, abs=1e-5)
    diagram = reliability_diagram_data(probabilities, labels, num_bins)
    gaps = (diagram.accuracy - diagram.confidence).abs().nan_to_num() * diagram.counts / len(labels)
    assert float(gaps.sum()) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("probabilities", "labels", "error"),
    [
        ([[1.0, 0.0], [0.96, 0.04]], [1, 0], 0.98 - 0.5),  # in the last bin they partly cancel
        ([[0.01] * 100] * 10, [1] * 10, 0.01),  # in the first bin, which the printed definition drops
    ],
)
def test_the_ends_of_the_bins(probabilities: list[list[float]], labels: list[int], error: float) -> None:
    given, right = torch.tensor(probabilities), torch.tensor(labels)
    assert expected_calibration_error(given, right) == pytest.approx(error, abs=1e-6)
    assert naive_ece(given, right, 15) == pytest.approx(error, abs=1e-6)


def test_a_confidence_on_an_edge_belongs_to_the_bin_above() -> None:
    diagram = reliability_diagram_data(torch.tensor([[0.5, 0.5], [0.75, 0.25]]), torch.tensor([0, 0]), num_bins=4)
    assert diagram.counts.tolist() == [0, 0, 1, 1]
    assert diagram.edges.tolist() == [0, 0.25, 0.5, 0.75, 1]


def resident_bytes(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * float(next(line for line in lines if line.startswith(name)).split()[1])


def test_the_summary_of_many_classes_takes_little_memory_beside_the_logits() -> None:
    logits, labels = torch.rand(30_000, 1000), torch.zeros(30_000, dtype=torch.int64)  # zeros would lie nowhere yet
    summarize(logits[:9], labels[:9], 1000)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before = resident_bytes("VmRSS")
    summarize(logits, labels, 1000)
    assert resident_bytes("VmHWM") - before < 70e6  # the logits: 120 MB


@pytest.mark.parametrize(
    ("outputs", "labels", "message"),
    [
        (torch.rand(3), torch.zeros(3).long(), "outputs have shape (3,); give (N, K) with two or more classes"),
        (torch.rand(0, 3), torch.zeros(0).long(), "outputs have shape (0, 3); give (N, K) with two or more classes"),
        (torch.rand(2, 1), torch.zeros(2).long(), "outputs have shape (2, 1); give (N, K) with two or more classes"),
        (
            torch.full((2, 3), math.nan),
            torch.zeros(2).long(),
            "outputs are not finite; the model has probably diverged; try a lower learning rate",
        ),
        (torch.rand(2, 3), torch.zeros(3).long(), "labels have shape (3,); give one for each of 2 samples"),
        (torch.rand(2, 3), torch.zeros(2), "labels have dtype torch.float32; give integer classes"),
        (torch.rand(2, 3), torch.zeros(2).bool(), "labels have dtype torch.bool; give integer classes"),
        (torch.rand(2, 3), torch.tensor([0, 3]), "labels range from 0 to 3, and must be within 0 to 2"),
        (torch.rand(2, 3), torch.tensor([-1, 0]), "labels range from -1 to 0, and must be within 0 to 2"),
    ],
)
def test_bad_input_is_named(outputs: torch.Tensor, labels: torch.Tensor, message: str) -> None:
    with refused(message):
        accuracy(outputs, labels)
    with refused(message):
        summarize(outputs, labels, 3)


LABELS = torch.tensor([0, 1])
NO_VOTES = "votes are whole numbers from 0; pass those of an ensemble that is neither weighted nor normalised"


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (
            lambda: confusion_matrix(torch.tensor([0, 5]), LABELS, 3),
            "predictions range from 0 to 5, and must be within 0 to 2",
        ),
        (lambda: confusion_matrix(LABELS, LABELS[:1], 3), "labels have shape (1,); give one for each of 2 samples"),
        (
            lambda: expected_calibration_error(torch.rand(2, 3) + 1, LABELS),
            "row 0 of the probabilities (2 of 2 rows) does not sum to 1; apply softmax, in float32 or better, to "
            "logits first",
        ),
        (
            lambda: expected_calibration_error(torch.eye(2), torch.tensor([0, 2])),
            "labels range from 0 to 2, and must be within 0 to 1",
        ),
        (
            lambda: reliability_diagram_data(torch.eye(2), LABELS, num_bins=0),
            "num_bins must be at least 1, got 0",
        ),
        (
            lambda: summarize(torch.rand(2, 3), LABELS, 4),
            "logits have 3 columns; expected one for each of 4 classes",
        ),
        (
            lambda: accuracy_by_votes(torch.ones(3, 2), LABELS),
            "votes (3, 2) and labels (2,): expected (N, K) and (N,), N ≥ 1",
        ),
        (lambda: accuracy_by_votes(torch.tensor([[0.5, 0.5], [1, 0]]), LABELS), NO_VOTES),
        (lambda: accuracy_by_votes(torch.tensor([[1, 0], [-1, 0]]), LABELS), NO_VOTES),
    ],
)
def test_bad_input_of_the_rest_is_named(measure, message: str) -> None:  # type: ignore[no-untyped-def]
    with refused(message):
        measure()


@given(st.integers(1, 30), st.integers(2, 5), st.integers(0, 10**6))
def test_accuracy_by_votes_equals_a_loop_in_any_order(num_samples: int, num_classes: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    votes = torch.randint(4, (num_samples, num_classes), generator=generator)
    labels = torch.randint(num_classes, (num_samples,), generator=generator)
    groups: dict[int, list[bool]] = {}
    for row, label in zip(votes.tolist(), labels.tolist(), strict=True):
        groups.setdefault(sum(row), []).append(sum(row) > 0 and row.index(max(row)) == label)
    order = torch.randperm(num_samples, generator=generator)
    curve = accuracy_by_votes(votes[order], labels[order])
    assert curve.num_votes.tolist() == sorted(groups)
    for q, count, share in zip(*(t.tolist() for t in curve), strict=True):
        assert count == len(groups[q])
        assert share == pytest.approx(100 * sum(groups[q]) / count)
