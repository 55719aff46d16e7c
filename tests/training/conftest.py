"""What tests of the training loop observe."""

import pytest
from torch.optim.optimizer import register_optimizer_step_pre_hook


@pytest.fixture
def steps():
    """The groups of the optimiser at each of its steps: learning rate, weight decay, kernel and parameters."""
    taken = []

    def observe(optimizer, *_):
        taken.append([dict(group) for group in optimizer.param_groups])

    handle = register_optimizer_step_pre_hook(observe)
    yield taken
    handle.remove()
