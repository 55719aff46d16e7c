"""What the stand-in refuses and takes is what CUDA refuses and takes: on a machine with a GPU these cases run on it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.devices.rules import CPU
from tests.devices.stand_in import DEVICE, StandIn

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
    "a scalar of the CPU, compared": lambda gpu: table(gpu) > ONE,
    "a scalar of the CPU, in place": lambda gpu: table(gpu).add_(ONE),
    "where, with scalars": lambda gpu: torch.where(table(gpu) > 1, ONE, ONE),
    "fill": lambda gpu: table(gpu).fill_(ONE),
    "masked_fill": lambda gpu: table(gpu).masked_fill(table(gpu) > 1, ONE),
    "read by indices of the CPU": lambda gpu: table(gpu)[INDICES],
    "read by a mask of the CPU": lambda gpu: table(gpu)[MASK],
    "written by indices of the CPU": lambda gpu: table(gpu).index_put_((INDICES,), torch.ones(2, 3, device=gpu)),
    "added by indices of the CPU": lambda gpu: table(gpu).index_put_(
        (INDICES, INDICES), torch.ones(2, device=gpu), accumulate=True
    ),
    "written from a scalar of the CPU": lambda gpu: table(gpu).index_put_((INDICES,), ONE),
    "copied from the CPU": lambda gpu: table(gpu).copy_(ROWS),
    "copied to the CPU": lambda gpu: torch.zeros(4, 3).copy_(table(gpu)),
    "lists": lambda gpu: torch._foreach_add([table(gpu), torch.ones(2)], [table(gpu), torch.ones(2)]),
    "lists and a scalar": lambda gpu: torch._foreach_mul([table(gpu), table(gpu)], 2.0),
    "pinned and copied": lambda gpu: ROWS.pin_memory().to(gpu, non_blocking=True),
    "numbers of a tensor": lambda gpu: (float(table(gpu)[0, 0]), table(gpu).tolist(), bool(table(gpu)[0, 0] > 1)),
    "numpy of a copy": lambda gpu: table(gpu).cpu().numpy(),
}

REFUSED: dict[str, Callable[[torch.device], Any]] = {
    "one row of the CPU": lambda gpu: table(gpu) + ROWS,
    "two scalars of the CPU": lambda gpu: torch.addcmul(table(gpu), ONE, ONE),
    "into a scalar of the CPU": lambda gpu: torch.tensor(1.0).add_(table(gpu).sum()),
    "into the CPU": lambda gpu: torch.ones(4, 3).add_(table(gpu)),
    "where, with a row": lambda gpu: torch.where(table(gpu) > 1, ROWS, 0.0),
    "lerp of the CPU": lambda gpu: table(gpu).lerp(torch.ones(4, 3), 0.5),
    "clamp to a scalar of the CPU": lambda gpu: table(gpu).clamp(min=ONE),
    "index_select": lambda gpu: table(gpu).index_select(0, INDICES),
    "index_add": lambda gpu: table(gpu).index_add_(0, INDICES, torch.ones(2, 3, device=gpu)),
    "gather": lambda gpu: table(gpu).gather(0, INDICES.view(1, 2)),
    "scatter": lambda gpu: table(gpu).scatter_(1, INDICES.view(2, 1), 1.0),
    "scatter_add": lambda gpu: table(gpu).scatter_add_(1, INDICES.view(2, 1), torch.ones(2, 1, device=gpu)),
    "embedding": lambda gpu: nn.functional.embedding(INDICES, table(gpu)),
    "indices of the GPU": lambda gpu: torch.ones(4, 3)[INDICES.to(gpu)],
    "written from rows of the CPU": lambda gpu: table(gpu).index_put_((INDICES,), torch.ones(2, 3)),
    "set from rows of the CPU": lambda gpu: table(gpu).__setitem__(INDICES, torch.ones(2, 3)),
    "matrix product": lambda gpu: table(gpu) @ torch.ones(3, 2),
    "cat": lambda gpu: torch.cat([table(gpu), torch.ones(1, 3)]),
    "stack": lambda gpu: torch.stack([table(gpu)[0], ROWS]),
    "labels of the CPU": lambda gpu: nn.functional.cross_entropy(table(gpu), torch.tensor([0, 1, 2, 0])),
    "weights of the CPU": lambda gpu: nn.Linear(3, 2)(table(gpu)),
    "statistics of the CPU": lambda gpu: nn.functional.batch_norm(table(gpu), torch.zeros(3), torch.ones(3)),
    "lists whose pairs differ": lambda gpu: torch._foreach_add([table(gpu)], [torch.ones(4, 3)]),
    "equal": lambda gpu: torch.equal(table(gpu), torch.ones(4, 3)),
    "numpy": lambda gpu: table(gpu).numpy(),
    "numpy's asarray": lambda gpu: np.asarray(table(gpu)),
    "pinned on the GPU": lambda gpu: table(gpu).pin_memory(),
    "a generator of the CPU": lambda gpu: table(gpu).bernoulli_(generator=torch.Generator()),
    "made with a generator of the CPU": lambda gpu: torch.randperm(3, generator=torch.Generator(), device=gpu),
}


@pytest.mark.parametrize("case", TAKEN)
def test_what_is_taken(gpu: torch.device, case: str) -> None:
    TAKEN[case](gpu)


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(gpu: torch.device, case: str) -> None:
    with pytest.raises((RuntimeError, TypeError)):
        REFUSED[case](gpu)


@pytest.mark.parametrize("case", REFUSED)
def test_on_one_device_it_is_taken(case: str) -> None:
    """So that each case is refused for its devices, and not for a mistake in it."""
    if case == "pinned on the GPU":
        pytest.skip("there is nothing to pin without a GPU")
    if case != "scatter" and case != "scatter_add" and case != "gather":
        REFUSED[case](CPU)


MADE: dict[str, Callable[[torch.device], Tensor]] = {
    "zeros": lambda gpu: torch.zeros(2, device=gpu),
    "tensor": lambda gpu: torch.tensor([1.0], device=gpu),
    "as_tensor": lambda gpu: torch.as_tensor([1.0], device="cuda"),
    "as_tensor of a tensor": lambda gpu: torch.as_tensor(ROWS, device=gpu),
    "like a tensor of the CPU": lambda gpu: torch.zeros_like(ROWS, device=gpu),
    "like": lambda gpu: torch.full_like(table(gpu), 2.0),
    "new_zeros": lambda gpu: table(gpu).new_zeros(3),
    "new_tensor": lambda gpu: table(gpu).new_tensor([1.0]),
    "arange": lambda gpu: torch.arange(3, device=gpu),
    "one_hot": lambda gpu: nn.functional.one_hot(INDICES.to(gpu), 3),
    "to another": lambda gpu: ROWS.to(table(gpu)),
    "to, by keyword": lambda gpu: ROWS.to(device=gpu, dtype=torch.float16),
    "cuda": lambda gpu: ROWS.cuda(),
    "a view": lambda gpu: table(gpu)[1:].T,
    "another precision": lambda gpu: table(gpu).half(),
    "of a copied tensor": lambda gpu: copy.deepcopy(table(gpu)),
    "of a module": lambda gpu: nn.Linear(3, 2).to(gpu).weight,
    "of a copied module": lambda gpu: copy.deepcopy(nn.Linear(3, 2).to(gpu)).weight,
    "in inference mode": lambda gpu: torch.inference_mode()(lambda: nn.Linear(3, 2).to(gpu)(table(gpu)))(),
    "in several parts": lambda gpu: table(gpu).sort().indices,
}


@pytest.mark.parametrize("case", MADE)
def test_where_a_tensor_is(gpu: torch.device, case: str) -> None:
    tensor = MADE[case](gpu)
    assert tensor.device == gpu
    assert tensor.is_cuda
    assert not tensor.is_cpu
    assert tensor.get_device() == 0
    assert tensor.cpu().device == CPU
    assert tensor.new_zeros(1, device="cpu").is_cpu
    assert torch.zeros_like(tensor, device="cpu").device.type == "cpu"


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


def test_autocast_and_the_scaler_of_gradients(gpu: torch.device) -> None:
    model = nn.Linear(3, 2).to(gpu)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    before = model.weight.detach().clone()
    scaler = torch.amp.GradScaler("cuda", init_scale=8.0)
    with torch.autocast("cuda", dtype=torch.float16):
        outputs = model(table(gpu))
    assert outputs.dtype == torch.float16
    scaler.scale(outputs.float().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(model.weight, before)
    assert optimizer.state[model.weight]["momentum_buffer"].device == gpu
    with torch.autocast("cuda", enabled=False):
        assert model(table(gpu)).dtype == torch.float32


def test_outside_everything_is_as_before() -> None:
    with StandIn():
        assert torch.cuda.is_available()
        tensor = table(DEVICE)
    assert tensor.device == CPU
    assert tensor.tolist() == torch.arange(12.0).view(4, 3).tolist()
    assert torch.autocast.__module__ == "torch.amp.autocast_mode"
