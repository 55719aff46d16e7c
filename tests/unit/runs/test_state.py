import copy
import random

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.refusals import one_line
from tllib_ancon.runs.state import copy_to_cpu, restore_snapshot, take_snapshot


def parts(width=2):
    model = nn.Linear(width, 3)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=width, momentum=0.9)}


def test_a_copied_snapshot_puts_everything_back_whatever_was_trained_and_drawn_since():
    trained = parts()
    trained["model"](torch.ones(1, 2)).sum().backward()
    trained["optimizer"].step()
    snapshot = copy_to_cpu(take_snapshot(trained))
    weights = copy.deepcopy(trained["model"].state_dict())
    drawn = torch.rand(3), random.random(), np.random.rand()
    trained["optimizer"].step()
    restored = parts()
    restore_snapshot(restored, snapshot)
    assert torch.equal(torch.rand(3), drawn[0])
    assert (random.random(), np.random.rand()) == drawn[1:]
    assert all(torch.equal(tensor, weights[name]) for name, tensor in restored["model"].state_dict().items())
    assert restored["optimizer"].state_dict()["state"][0]["momentum_buffer"] is not None


@pytest.mark.parametrize("state", [parts(width=4)["model"].state_dict(), {}])
def test_a_part_that_does_not_fit_is_one_line(state):
    snapshot = take_snapshot(parts())
    snapshot["parts"]["model"] = state
    with one_line("the state of this run cannot be read .*overwrite=True"):
        restore_snapshot(parts(), snapshot)


def test_tied_weights_stay_one():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    copied = copy_to_cpu(model.state_dict())
    assert copied["0.weight"] is copied["1.weight"]
