from __future__ import annotations

import pytest
import torch
from torch import nn

from tllib_ancon.errors import UserError
from tllib_ancon.models.batch_norm import estimate_statistics


def test_statistics_are_the_means_over_the_batches() -> None:
    """Of the first layer's inputs; the second one sees what the batch's own statistics normalise."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Conv2d(4, 2, 3))
    model.append(nn.BatchNorm2d(2))
    batches = [3 * torch.randn(5, 3, 8, 8) + 1 for _ in range(4)]
    model.eval()
    model[3].train()
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}
    estimate_statistics(model, batches)
    first = [model[0](batch) for batch in batches]
    normalised = [nn.functional.batch_norm(x, None, None, model[1].weight, model[1].bias, True) for x in first]
    second = [model[4](x.relu()) for x in normalised]
    for layer, inputs in ((model[1], first), (model[5], second)):
        means = torch.stack([x.mean((0, 2, 3)) for x in inputs]).mean(0)
        variances = torch.stack([x.var((0, 2, 3)) for x in inputs]).mean(0)
        torch.testing.assert_close(layer.running_mean, means)
        torch.testing.assert_close(layer.running_var, variances)
        assert layer.momentum == 0.1
        assert not layer.training
    assert model[3].training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.named_parameters())


@pytest.mark.parametrize("model", [nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False)])
def test_a_model_without_statistics(model: nn.Module) -> None:
    with pytest.raises(UserError, match="no batch-norm"):
        estimate_statistics(model, [torch.zeros(3, 2)])
