"""The fitted learning rate."""

import pytest
import torch
from torch import Tensor, nn

from tllib_ancon.training.rate import fitted_rate


def test_a_step_at_the_fitted_rate_changes_predictions_by_a_part_of_what_two_views_differ() -> None:
    torch.manual_seed(0)
    layer, batches = nn.Linear(4, 3), [*torch.randn(2, 8, 4)]

    def loss(batch: Tensor) -> Tensor:
        return nn.functional.cross_entropy(layer(batch), layer(batch).argmax(1))

    def predict(batch: Tensor) -> Tensor:
        return torch.stack([layer(batch), layer(batch.flip(1))]).softmax(2)

    rate = fitted_rate(1e-3, batches, [*layer.parameters()], loss, predict)
    before = predict(batches[1]).detach()
    loss(batches[0]).backward()
    torch.optim.SGD(layer.parameters(), rate).step()
    change, views = [(some - before[0]).abs().mean() for some in (predict(batches[1])[0], before[1])]
    assert (change / views).item() == pytest.approx(1e-3, rel=0.02)
