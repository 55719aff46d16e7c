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


def correlation_criterion(generator: Generator) -> Finding:
    collapsed, diverse = torch.eye(4)[[0, 0, 0, 0]], torch.eye(4)
    correlation = diverse.T @ diverse
    printed = correlation / (correlation.norm() / 4**0.5)
    return Finding(
        "Corr-C and Ent are numbers of which lower is better",
        "Definitions of model selection criteria",
        printed.numel() == 1 and marginal_entropy(collapsed) > marginal_entropy(diverse),
        {
            "entries of the printed Corr-C, K = 4": printed.numel(),
            "printed Ent of one class for all": marginal_entropy(collapsed),
            "of all classes evenly": marginal_entropy(diverse),
        },
        "Tu et al. compare the matrix with I/√K; H(E f) prefers collapse, Morerio et al. use E H(f)",
    )
