"""Optimiser, schedule, batch-norm statistics and hold-out are as documented, and what has no effect is refused."""

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.refusals import REFUSED, one_line
from tests.support.small import adapt, transformer

LAYERS = nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.LayerNorm(6), nn.Linear(6, 3))


def test_adamw_decays_no_norm_and_no_bias(steps):
    adapt(transformer(), torch.randn(8, 3, 16, 16), epochs=1, optimizer="adamw", weight_decay=0.3)
    for group in steps[0]:
        dimensions = {min(parameter.ndim, 2) for parameter in group["params"]}
        assert dimensions <= {2 if group["weight_decay"] == 0.3 else 1}
    assert {group["weight_decay"] for group in steps[0]} == {0.0, 0.3}


def test_the_rate_decays_by_a_power(steps):
    adapt(lr=0.5, epochs=4, batch_size=4, criterion="last")
    rates = [group["lr"] for ((group),) in steps]
    progress = np.arange(24) / 24
    assert rates == pytest.approx(0.05 * (1 + 10 * progress) ** -0.75)


REFUSED_OF_A_NETWORK = [
    *((None, *row) for row in REFUSED["stabilisation"]),
    (LAYERS, {"method": "adabn", "epochs": 1}, "the model has no batch-norm with running statistics"),
]


@pytest.mark.parametrize(("model", "settings", "message"), REFUSED_OF_A_NETWORK)
def test_what_is_refused(model, settings, message):
    with one_line(message):
        adapt(model, **settings)
