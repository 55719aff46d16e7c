"""Accuracy, confusion and calibration error equal their definitions in any order of samples."""

import json
from statistics import fmean

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import REFUSED, refused
from tllib_ancon.measures.evaluation import expected_calibration_error, summarize


@st.composite
def problems(draw):
    """Logits (N, K) and labels (N,)."""
    num_samples = draw(st.integers(1, 40))
    num_classes = draw(st.integers(2, 7))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    logits = 4 * torch.randn(num_samples, num_classes, generator=generator)
    return logits, torch.randint(num_classes, (num_samples,), generator=generator)


def naive_confusion(logits, labels):
    counts = [[0] * logits.shape[1] for _ in logits[0]]
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        counts[label][row.index(max(row))] += 1
    return counts


def naive_ece(probabilities, labels, num_bins):
    """The definition, with the edges as float32 holds them."""
    edges = np.linspace(0, 1, num_bins + 1).astype(np.float32)[:-1]
    bins = {}
    for row, label in zip(probabilities.float().tolist(), labels.tolist(), strict=True):
        confidence = max(row)
        number = np.flatnonzero(edges <= np.float32(confidence))[-1]
        is_right = row.index(confidence) == label
        bins.setdefault(number, []).append(confidence - is_right)
    return sum(abs(sum(gaps)) for gaps in bins.values()) / len(labels)


@given(problem=problems())
def test_the_summary_has_each_measure_and_no_order(problem):
    logits, labels = problem
    num_classes = logits.shape[1]
    naive = naive_confusion(logits, labels)
    by_class = [100 * row[k] / sum(row) if sum(row) else None for k, row in enumerate(naive)]
    present = [value for value in by_class if value is not None]
    summary = summarize(logits, labels, num_classes)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary == {
        "accuracy": pytest.approx(100 * sum(naive[k][k] for k in range(num_classes)) / len(labels)),
        "mean_class_accuracy": pytest.approx(fmean(present)),
        "ece": expected_calibration_error(logits.softmax(dim=1), labels, 15),
        "per_class_accuracy": pytest.approx(by_class),
    }
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    permuted = summarize(logits[order], labels[order], num_classes)
    assert summary.pop("ece") == pytest.approx(permuted.pop("ece"), abs=1e-6)
    assert summary == permuted


@pytest.mark.parametrize("num_bins", [1, 10, 15])
@given(problem=problems())
def test_ece_equals_the_definition(num_bins, problem):
    logits, labels = problem
    probabilities = logits.softmax(dim=1)
    expected = naive_ece(probabilities, labels, num_bins)
    assert expected_calibration_error(probabilities, labels, num_bins) == pytest.approx(expected, abs=1e-5)


def test_a_confidence_at_an_edge_is_in_the_bin_above():
    probabilities = [[0.5, 0.3, 0.2], [0.45, 0.3, 0.25]]
    assert expected_calibration_error(probabilities, [0, 1], 10) == pytest.approx(0.475)


@pytest.mark.parametrize(("labels", "num_bins", "message"), REFUSED["labels"])
def test_bad_labels_are_named(labels, num_bins, message):
    with refused(message):
        expected_calibration_error(torch.eye(2), torch.tensor(labels), num_bins)
