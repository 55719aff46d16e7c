"""A snapshot puts models and random generators back, and one that does not fit is one line."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.refusals import one_line
from tllib_ancon.runs.state import restore_snapshot, take_snapshot


def parts(width=2):
    model = nn.Linear(width, 3)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=width, momentum=0.9)}


def test_a_snapshot_puts_everything_back_whatever_was_drawn_since():
    trained = parts()
    trained["model"](torch.ones(1, 2)).sum().backward()
    trained["optimizer"].step()
    snapshot = copy.deepcopy(take_snapshot(trained))
    drawn = torch.rand(3), random.random(), np.random.rand()
    restored = parts()
    restore_snapshot(restored, snapshot)
    assert torch.equal(torch.rand(3), drawn[0])
    assert (random.random(), np.random.rand()) == drawn[1:]
    assert torch.equal(restored["model"].weight, trained["model"].weight)
    assert restored["optimizer"].state_dict()["state"][0]["momentum_buffer"] is not None


@pytest.mark.parametrize("state", [parts(width=4)["model"].state_dict(), {}])
def test_a_part_that_does_not_fit_is_one_line(state):
    snapshot = take_snapshot(parts())
    snapshot["parts"]["model"] = state
    with one_line("the state of this run cannot be read .*overwrite=True"):
        restore_snapshot(parts(), snapshot)
