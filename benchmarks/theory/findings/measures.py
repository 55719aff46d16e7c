"""The definitions of what is measured: calibration and the criteria of selection."""

from __future__ import annotations

import torch
from torch import Generator

from benchmarks.theory.findings.finding import Finding
from tllib_ancon.evaluation import expected_calibration_error, reliability_diagram_data
from tllib_ancon.selection import marginal_entropy


def calibration_bins(generator: Generator) -> Finding:
    logits = 0.5 * torch.randn(1000, 100, generator=generator)
    probabilities, labels = logits.softmax(dim=1), torch.randint(1, (1000,), generator=generator)
    diagram = reliability_diagram_data(probabilities, labels)
    gaps = (diagram.accuracy - diagram.confidence).abs().nan_to_num() * diagram.counts / diagram.counts.sum()
    whole, printed = expected_calibration_error(probabilities, labels), float(gaps[1:].sum())
    return Finding(
        "the bins g/G ≤ c < (g + 1)/G for g = 1, …, G cover all confidences",
        "Definition of ECE",
        whole == printed,
        {"ECE over [0, 1]": whole, "printed ECE": printed},
        "the first bin is dropped, here of 100 classes at odds near 1/100; G is not stated",
    )


def entropy_criterion(generator: Generator) -> Finding:
    labels = torch.randint(4, (200,), generator=generator)
    right, collapsed = torch.eye(4)[labels], torch.eye(4)[torch.zeros_like(labels)]
    return Finding(
        "of two models, Ent = H(E f) is lower for the better one",
        "Definitions of model selection criteria",
        marginal_entropy(right) < marginal_entropy(collapsed),
        {
            "Ent of a model that is always right": marginal_entropy(right),
            "of one class for all": marginal_entropy(collapsed),
        },
        "Morerio et al. use E H(f). The printed Corr-C is a K × K matrix; Tu et al. compare it with I/√K",
    )
