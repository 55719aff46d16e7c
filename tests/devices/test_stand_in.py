"""What the stand-in refuses is what CUDA refuses."""

import pytest
import torch

from tests.devices.stand_in import DEVICE, StandIn

ROWS = torch.ones(4, 3)
INDICES = torch.tensor([0, 2])

REFUSED = {
    "rows of the CPU": lambda table: table + ROWS,
    "into a scalar of the CPU": lambda table: torch.tensor(1.0).add_(table.sum()),
    "indices of the GPU": lambda table: ROWS[INDICES.to(DEVICE)],
    "written from rows of the CPU": lambda table: table.index_put_((INDICES,), ROWS[:2]),
    "lists whose pairs differ": lambda table: torch._foreach_add([table], [ROWS]),
    "numpy": lambda table: table.numpy(),
    "a generator of the CPU": lambda table: table.bernoulli_(generator=torch.Generator()),
    "a copy that does not wait": lambda table: table.to("cpu", non_blocking=True),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    with StandIn(), pytest.raises((RuntimeError, TypeError)):
        REFUSED[case](torch.zeros(4, 3).to(DEVICE))


def test_a_backward_pass_is_watched_too():
    class Forgets(torch.autograd.Function):
        @staticmethod
        def forward(context, values):
            return values.clone()

        @staticmethod
        def backward(context, gradient):
            return gradient * torch.ones(3)

    with StandIn(), pytest.raises(RuntimeError, match=r"aten\.mul\.Tensor expects all tensors to be on the same"):
        Forgets.apply(torch.ones(3, device="cuda", requires_grad=True)).sum().backward()
