"""Every method by itself on the stand-in for a GPU, with indices on the CPU and on the device, and many classes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.devices.rules import CPU
from tests.devices.stand_in import DEVICE, StandIn
from tests.self_training.neighborhoods import few_neighbors
from tllib_ancon import methods
from tllib_ancon.self_training.votes import SparseVotes

SAMPLES, CLASSES, WIDTH, BATCH, STEPS = 20, 12, 5, 8, 12


def losses(method_name: str, device: torch.device, indices_on: torch.device) -> tuple[list[float], list[Tensor]]:
    """Of each step, with the gradients of the logits."""
    generator = torch.Generator().manual_seed(0)
    few: dict[str, Any] = few_neighbors(method_name, 3, 2)
    method = methods.create(
        method_name,
        num_samples=SAMPLES,
        num_classes=CLASSES,
        feature_dim=WIDTH,
        total_steps=STEPS,
        head=nn.Linear(WIDTH, CLASSES).to(device),
        **few,
    ).to(device)
    features, logits = (torch.randn(SAMPLES, width, generator=generator).to(device) for width in (WIDTH, CLASSES))
    method.initialize(0, torch.arange(SAMPLES), features, logits)
    values, gradients = [], []
    for _ in range(STEPS):
        indices = torch.randperm(SAMPLES, generator=generator)[:BATCH]
        features = torch.randn(BATCH, WIDTH, generator=generator).to(device)
        logits = (4 * torch.randn(BATCH, CLASSES, generator=generator)).to(device).requires_grad_()
        loss = method(indices.to(indices_on), logits, features)
        loss.backward()
        assert logits.grad is not None
        assert logits.grad.device == device
        values.append(float(loss.detach()))
        gradients.append(logits.grad.cpu())
    return values, gradients


@pytest.mark.parametrize("method", methods.names())
def test_every_method(method: str) -> None:
    expected = losses(method, CPU, CPU)
    with StandIn():
        found = [losses(method, DEVICE, indices_on) for indices_on in (CPU, DEVICE)]
    for values, gradients in found:
        assert values == pytest.approx(expected[0], abs=1e-5)
        torch.testing.assert_close(gradients, expected[1])


@pytest.mark.parametrize("weighted", [False, True])
def test_sparse_votes_are_widened_on_the_device(weighted: bool) -> None:
    def counted(device: torch.device) -> Tensor:
        votes = SparseVotes(SAMPLES, CLASSES, weighted).to(device)
        for shift in range(CLASSES):
            indices = torch.arange(SAMPLES)
            classes = ((indices + shift) % CLASSES).to(device)
            votes.add(indices, classes, torch.ones(SAMPLES, device=device) if weighted else classes % 2 == 0)
        assert votes.counts.shape[1] > 4
        return votes.read(torch.arange(SAMPLES)).cpu()

    with StandIn():
        found = counted(DEVICE)
    assert torch.equal(found, counted(CPU))
