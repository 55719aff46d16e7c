"""A network with many convolutions or a pool has its channels last in memory."""

import pytest
import torch
from torch import nn

from tllib_ancon.training.trainer import _use_fastest_layout


@pytest.mark.parametrize(("convolutions", "pools", "is_last"), [(7, 0, False), (8, 0, True), (1, 1, True)])
def test_channels_are_last_where_that_is_faster(convolutions, pools, is_last):
    layers = [nn.Conv2d(2, 2, 3) for _ in range(convolutions)] + [nn.MaxPool2d(2)] * pools
    _use_fastest_layout(nn.Sequential(*layers))
    assert layers[0].weight.is_contiguous(memory_format=torch.channels_last) == is_last
