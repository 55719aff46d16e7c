"""Votes, pseudo-labels, losses and gradients equal thirty steps recorded from the authors' code."""

import pytest
import torch

from tllib_ancon.self_training import (
    AnchoredConfidence,
    EarlyLearningRegularization,
    NeighborhoodReciprocity,
    cross_entropy,
    generalized_cross_entropy,
)


def test_values_recorded_from_the_authors_code(golden):
    ancon = AnchoredConfidence(int(golden["N"]), int(golden["K"]))
    for step in range(int(golden["steps"])):
        indices = torch.from_numpy(golden["idx"][step])
        logits = torch.from_numpy(golden["logits"][step])
        found = {"y_bar_before": ancon.ensemble.votes(indices), "smooth": ancon(indices, logits)}
        found["delta"] = ancon.threshold
        for name, value in found.items():
            torch.testing.assert_close(value, torch.as_tensor(golden[name][step]), rtol=1e-5, atol=1e-7)
    everything = torch.arange(int(golden["N"]))
    assert torch.equal(ancon.ensemble.votes(everything), torch.from_numpy(golden["y_bar_final"]))


@pytest.mark.parametrize("name", ["ce", "gce", "elr", "nrc", "nrc_ancon"])
def test_losses_as_recorded_from_the_authors_code(golden, name):
    num_samples = int(golden["N"])
    num_classes = int(golden["K"])
    feature_dim = int(golden["D"])
    elr = EarlyLearningRegularization(num_samples, num_classes)
    nrc = NeighborhoodReciprocity(num_samples, num_classes, feature_dim, reciprocal=False)
    first_features = torch.from_numpy(golden["features_init"])
    first_logits = torch.from_numpy(golden["logits_init"])
    nrc.initialize(torch.arange(num_samples), first_features, first_logits)
    losses = {
        "ce": lambda step, logits: cross_entropy(logits, step["smooth"]),
        "gce": lambda step, logits: generalized_cross_entropy(logits, step["smooth"]),
        "elr": lambda step, logits: elr(step["idx"], logits),
        "nrc": lambda step, logits: nrc(step["idx"], step["features"], logits),
        "nrc_ancon": lambda step, logits: nrc(step["idx"], step["features"], logits, step["y_bar_before"]),
    }
    for number in range(int(golden["steps"])):
        step = {key: torch.as_tensor(value[number]) for key, value in golden.items() if value.ndim}
        found = losses[name](step, step["logits"].requires_grad_())
        found.backward()
        torch.testing.assert_close(found.detach(), step[name], rtol=1e-5, atol=0)
        if name != "nrc_ancon":
            atol = 1e-8 if name in ("gce", "elr") else 1e-7
            torch.testing.assert_close(step["logits"].grad, step[f"{name}_grad"], rtol=1e-5, atol=atol)
