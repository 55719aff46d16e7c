"""What the stand-in refuses and takes is what CUDA refuses and takes: on a machine with a GPU these cases run on it."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.devices.stand_in import CPU, DEVICE, StandIn

REAL = pytest.param(
    "gpu", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU to compare the stand-in with")
)


@pytest.fixture(params=["stand-in", REAL])
def gpu(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    if request.param == "gpu":
        yield DEVICE
        return
    with StandIn():
        yield DEVICE


def table(gpu: torch.device) -> Tensor:
    return torch.arange(12.0).view(4, 3).to(gpu)


ONE, ROWS, INDICES = torch.tensor(2.0), torch.ones(3), torch.tensor([0, 2])
MASK = torch.tensor([True, False, True, False])

TAKEN: dict[str, Callable[[torch.device], Any]] = {
    "a scalar of the CPU": lambda gpu: table(gpu) * ONE + ONE,
    "a scalar of the CPU, in place": lambda gpu: table(gpu).add_(ONE),
    "where, with scalars": lambda gpu: torch.where(table(gpu) > 1, ONE, ONE),
    "masked_fill": lambda gpu: table(gpu).masked_fill(table(gpu) > 1, ONE),
    "read by indices of the CPU": lambda gpu: table(gpu)[INDICES],
    "written by indices of the CPU": lambda gpu: table(gpu).index_put_((INDICES,), torch.ones(2, 3, device=gpu)),
    "added by indices of the CPU": lambda gpu: table(gpu).index_put_(
        (INDICES, INDICES), torch.ones(2, device=gpu), accumulate=True
    ),
    "written from a scalar of the CPU": lambda gpu: table(gpu).index_put_((INDICES,), ONE),
    "copied to the CPU": lambda gpu: torch.zeros(4, 3).copy_(table(gpu)),
    "pinned and copied": lambda gpu: ROWS.pin_memory().to(gpu, non_blocking=True),
    "numbers of a tensor": lambda gpu: (float(table(gpu)[0, 0]), table(gpu).tolist(), bool(table(gpu)[0, 0] > 1)),
    "numpy of a copy": lambda gpu: table(gpu).cpu().numpy(),
}

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
    "pinned on the GPU": lambda gpu: table(gpu).pin_memory(),
    "a generator of the CPU": lambda gpu: table(gpu).bernoulli_(generator=torch.Generator()),
}


@pytest.mark.parametrize("case", TAKEN)
def test_what_is_taken(gpu: torch.device, case: str) -> None:
    TAKEN[case](gpu)


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(gpu: torch.device, case: str) -> None:
    with pytest.raises((RuntimeError, TypeError)):
        REFUSED[case](gpu)


MADE: dict[str, Callable[[torch.device], Tensor]] = {
    "zeros": lambda gpu: torch.zeros(2, device=gpu),
    "as_tensor": lambda gpu: torch.as_tensor([1.0], device="cuda"),
    "like a tensor of the CPU": lambda gpu: torch.zeros_like(ROWS, device=gpu),
    "new_tensor": lambda gpu: table(gpu).new_tensor([1.0]),
    "one_hot": lambda gpu: nn.functional.one_hot(INDICES.to(gpu), 3),
    "to another": lambda gpu: ROWS.to(table(gpu)),
    "to, by keyword": lambda gpu: ROWS.to(device=gpu, dtype=torch.float16),
    "a view of a cuda tensor": lambda gpu: ROWS.cuda()[1:].half(),
    "of a copied module": lambda gpu: copy.deepcopy(nn.Linear(3, 2).to(gpu)).weight,
    "in inference mode": lambda gpu: torch.inference_mode()(lambda: nn.Linear(3, 2).to(gpu)(table(gpu)))(),
}


@pytest.mark.parametrize("case", MADE)
def test_where_a_tensor_is(gpu: torch.device, case: str) -> None:
    tensor = MADE[case](gpu)
    assert (tensor.device, tensor.is_cuda, tensor.is_cpu, tensor.get_device()) == (gpu, True, False, 0)
    assert tensor.cpu().device == tensor.new_zeros(1, device="cpu").device == CPU


def test_gradients_come_back_to_where_a_tensor_is(gpu: torch.device) -> None:
    here, there = torch.ones(3, requires_grad=True), torch.ones(3, device=gpu, requires_grad=True)
    (2 * here.to(gpu) * there).sum().cpu().backward()  # type: ignore[no-untyped-call]
    assert here.grad is not None
    assert there.grad is not None
    assert (here.grad.device, there.grad.device) == (CPU, gpu)
    assert here.grad.tolist() == there.grad.cpu().tolist() == [2.0, 2.0, 2.0]


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


def test_outside_everything_is_as_before() -> None:
    with StandIn():
        assert torch.cuda.is_available()
        tensor = table(DEVICE)
    assert tensor.device == CPU
    assert tensor.tolist() == torch.arange(12.0).view(4, 3).tolist()
    assert torch.autocast.__module__ == "torch.amp.autocast_mode"
