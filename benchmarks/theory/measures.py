"""The definitions of what is measured: calibration and the criteria of selection."""

import torch
from torch import Generator

from benchmarks.theory.statements import Verdict, statement
from tllib_ancon.measures.evaluation import expected_calibration_error, reliability_diagram_data


@statement(
    "the bins g/G ≤ c < (g + 1)/G for g = 1, …, G cover all confidences",
    "Definition of ECE",
    "the first bin is dropped, here of 100 classes at odds near 1/100; G is not stated",
)
def calibration_bins(generator: Generator) -> Verdict:
    logits = 0.5 * torch.randn(1000, 100, generator=generator)
    probabilities, labels = logits.softmax(dim=1), torch.randint(1, (1000,), generator=generator)
    diagram = reliability_diagram_data(probabilities, labels)
    gaps = (diagram.accuracy - diagram.confidence).abs().nan_to_num() * diagram.counts / diagram.counts.sum()
    whole, printed = expected_calibration_error(probabilities, labels), float(gaps[1:].sum())
    return whole == printed, {"ECE over [0, 1]": whole, "printed ECE": printed}


@statement(
    "of two models, Ent = H(E f) is lower for the better one",
    "Definitions of model selection criteria",
    "Morerio et al. use E H(f). The printed Corr-C is a K × K matrix; Tu et al. compare it with I/√K",
)
def entropy_criterion(generator: Generator) -> Verdict:
    labels = torch.randint(4, (200,), generator=generator)
    right, collapsed = (
        float(torch.special.entr(torch.eye(4)[one].mean(0)).sum()) for one in (labels, torch.zeros_like(labels))
    )
    return right < collapsed, {"Ent of a model that is always right": right, "of one class for all": collapsed}
