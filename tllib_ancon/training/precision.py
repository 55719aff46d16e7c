"""Devices and mixed precision, by Accelerate; memory layout and compilation."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import nn


class Layout(Protocol):
    """The options of :func:`lay_out`."""

    channels_last: bool
    compile: bool


def create_accelerator(mixed_precision: str) -> Any:
    """An ``accelerate.Accelerator``, also after one of another precision in the same process, which it remembers."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state()
    return Accelerator(mixed_precision=mixed_precision)


def lay_out(model: nn.Module, options: Layout) -> None:
    """Store the weights of convolutions channels last and compile the model's call, as far as ``options`` ask for it.

    Both change the rounding alone. The names in the state dict stay.
    """
    if options.channels_last:
        model.to(memory_format=torch.channels_last)
    if options.compile:
        model.compile()
