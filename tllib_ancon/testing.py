"""Checks that every method passes, built in or your own: ``check_method("focal+ancon")``."""

import copy
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.testing import assert_close

from tllib_ancon import methods

SAMPLES = 24
CLASSES = 4
WIDTH = 6
BATCH = 8
EPOCHS = 3
IN_ORDER = torch.arange(SAMPLES)

Create = Callable[[], methods.Method]


def check_method(name: str, **options: Any) -> None:
    """Run all :data:`CHECKS` on a registered method.

    Args:
        name (str): as for :func:`tllib_ancon.methods.create`
        **options: settings of the method

    Raises:
        AssertionError: naming the values that differ
        UserError: an unknown name or option

    Example::

        >>> from tllib_ancon.testing import check_method
        >>> check_method("focal+ancon", focus=1.0)
    """
    for check in CHECKS:
        check(lambda: create(name, **options))


def create(name: str, **options: Any) -> methods.Method:
    """The method for 24 samples, 4 classes and 6 features, equal at each call."""
    torch.manual_seed(0)
    head = nn.Linear(WIDTH, CLASSES)
    sizes: dict[str, Any] = {"num_samples": SAMPLES, "num_classes": CLASSES, "feature_dim": WIDTH, "total_steps": 9}
    return methods.create(name, **{**sizes, "head": head, **options})


def losses(
    method: methods.Method, position: Tensor = IN_ORDER, dtype: torch.dtype = torch.float32, seed: int = 0
) -> list[Tensor]:
    """Losses of three epochs over the same images in the same order, image ``i`` stored at ``position[i]``."""
    generator = torch.Generator().manual_seed(seed)
    stored = position.argsort()
    result = []
    for epoch in range(EPOCHS):
        features = torch.randn(SAMPLES, WIDTH, generator=generator).bfloat16().to(dtype)
        logits = (2 * torch.randn(SAMPLES, CLASSES, generator=generator)).bfloat16().to(dtype)
        if method.needs_pass(epoch):
            method.begin_epoch(epoch, IN_ORDER, features[stored], logits[stored])
        for batch in torch.split(torch.randperm(SAMPLES, generator=generator), BATCH):
            result.append(method(position[batch], logits[batch], features[batch]))
    return result


def _check_storage_order(create: Create) -> None:
    """The order in which samples are stored changes no loss."""
    shuffled = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(1))
    assert_close(losses(create(), shuffled), losses(create()))


def _check_precision(create: Create) -> None:
    """bfloat16 logits and autocast give the losses of float32."""
    expected = losses(create())
    assert_close(losses(create(), dtype=torch.bfloat16), expected, check_dtype=False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(losses(create()), expected)


def _check_state(create: Create) -> None:
    """A restored state continues with equal losses, and a copy has a state of its own."""
    method = create()
    restored = create()
    losses(method)
    restored.load_state_dict(method.state_dict())
    twin = copy.deepcopy(method)
    before = copy.deepcopy(method.state_dict())
    expected = losses(twin, seed=1)
    assert_close(method.state_dict(), before, rtol=0, atol=0, equal_nan=True)
    assert_close(losses(restored, seed=1), expected, rtol=0, atol=0)


def _check_no_device_wait(create: Create) -> None:
    """A step reads no value of a tensor on a device. Tensors of the meta device have no values, so that
    reading one fails."""
    method = create()
    losses(method)
    method.to("meta")
    with patch.object(torch, "autocast"):
        for batch in torch.split(IN_ORDER, BATCH):
            logits = torch.empty(BATCH, CLASSES, device="meta", requires_grad=True)
            features = torch.empty(BATCH, WIDTH, device="meta")
            method(batch, logits, features).backward()
            method.diagnostics()
            assert logits.grad is not None, "the loss has no gradient for the logits"


CHECKS: tuple[Callable[[Create], None], ...] = (
    _check_storage_order,
    _check_precision,
    _check_state,
    _check_no_device_wait,
)
