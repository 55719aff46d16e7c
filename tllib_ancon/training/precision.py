"""Devices and mixed precision, by Accelerate; memory layout and compilation."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import nn

from tllib_ancon.errors import UserError
from tllib_ancon.self_training import processes
from tllib_ancon.training import launch


class Layout(Protocol):
    """The options of :func:`lay_out`."""

    channels_last: bool
    compile: bool


def create_accelerator(mixed_precision: str) -> Any:
    """An ``accelerate.Accelerator``, also after one of another precision in the same process, which it remembers.

    It joins the other processes of the launch. Without a GPU that needs to be asked for.
    """
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    launch.join()
    AcceleratorState._reset_state()
    only_cpus = processes.world_size() > 1 and not torch.cuda.is_available()
    return Accelerator(mixed_precision=mixed_precision, cpu=only_cpus)


def lay_out(model: nn.Module, options: Layout) -> None:
    """Store the weights of convolutions channels last and compile the model's call, as far as ``options`` ask for it.

    Both change the rounding alone. The names in the state dict stay.
    """
    if options.channels_last:
        model.to(memory_format=torch.channels_last)
    if options.compile:
        model.compile()


def synchronize_batch_norm(model: nn.Module, device: torch.device) -> nn.Module:
    """The model with batch statistics of all processes' batches in batch-norm; names in the state dict stay.

    Raises:
        UserError: not on a GPU, where alone torch has it
    """
    if device.type != "cuda":
        raise UserError(
            f"--sync-batch-norm needs GPUs, and this run is on a {device.type.upper()}; leave it out: each process "
            "then normalises by its own batch"
        )
    return nn.SyncBatchNorm.convert_sync_batchnorm(model)
