"""What the stand-in refuses is what CUDA refuses."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.devices.stand_in import DEVICE, StandIn


def table(gpu: torch.device) -> Tensor:
    return torch.arange(12.0).view(4, 3).to(gpu)


ONE, ROWS, INDICES = torch.tensor(2.0), torch.ones(3), torch.tensor([0, 2])

REFUSED: dict[str, Callable[[torch.device], Any]] = {
    "one row of the CPU": lambda gpu: table(gpu) + ROWS,
    "into a scalar of the CPU": lambda gpu: torch.tensor(1.0).add_(table(gpu).sum()),
    "into the CPU": lambda gpu: torch.ones(4, 3).add_(table(gpu)),
    "index_select": lambda gpu: table(gpu).index_select(0, INDICES),
    "gather": lambda gpu: table(gpu).gather(0, INDICES.view(1, 2)),
    "scatter": lambda gpu: table(gpu).scatter_(1, INDICES.view(2, 1), 1.0),
    "indices of the GPU": lambda gpu: torch.ones(4, 3)[INDICES.to(gpu)],
    "written from rows of the CPU": lambda gpu: table(gpu).index_put_((INDICES,), torch.ones(2, 3)),
    "matrix product": lambda gpu: table(gpu) @ torch.ones(3, 2),
    "cat": lambda gpu: torch.cat([table(gpu), torch.ones(1, 3)]),
    "labels of the CPU": lambda gpu: nn.functional.cross_entropy(table(gpu), torch.tensor([0, 1, 2, 0])),
    "weights of the CPU": lambda gpu: nn.Linear(3, 2)(table(gpu)),
    "lists whose pairs differ": lambda gpu: torch._foreach_add([table(gpu)], [torch.ones(4, 3)]),
    "equal": lambda gpu: torch.equal(table(gpu), torch.ones(4, 3)),
    "numpy": lambda gpu: table(gpu).numpy(),
    "a generator of the CPU": lambda gpu: table(gpu).bernoulli_(generator=torch.Generator()),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    with StandIn(), pytest.raises((RuntimeError, TypeError)):
        REFUSED[case](DEVICE)


def test_a_backward_pass_is_watched_too() -> None:
    class Forgets(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, values: Tensor) -> Tensor:
            return values.clone()

        @staticmethod
        def backward(context: Any, gradient: Tensor) -> Tensor:
            return gradient * torch.ones(3)

    with StandIn(), pytest.raises(RuntimeError, match=r"aten\.mul\.Tensor expects all tensors to be on the same"):
        Forgets.apply(torch.ones(3, device="cuda", requires_grad=True)).sum().backward()


def test_a_copy_that_does_not_wait_is_not_read() -> None:
    with StandIn(), pytest.raises(RuntimeError, match="has no values yet"):
        table(DEVICE).to("cpu", non_blocking=True)
