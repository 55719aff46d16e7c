"""Devices and mixed precision, by Accelerate; memory layout and compilation."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tllib_ancon.errors import UserError
from tllib_ancon.self_training import processes
from tllib_ancon.training import launch

DATA_PARALLEL = {"gradient_as_bucket_view": True}
"""Options of DistributedDataParallel."""


class SpeedOptions(Protocol):
    """The options of :func:`lay_out`."""

    @property
    def channels_last(self) -> bool: ...
    @property
    def compile(self) -> bool: ...


def create_accelerator(mixed_precision: str) -> Any:
    """An ``accelerate.Accelerator``, also after one of another precision in the same process, which it remembers.

    It joins the other processes of the launch. Without a GPU that needs to be asked for.
    """
    from accelerate import Accelerator, DistributedDataParallelKwargs
    from accelerate.state import AcceleratorState

    launch.join()
    AcceleratorState._reset_state()
    only_cpus = processes.world_size() > 1 and not torch.cuda.is_available()
    parallel = DistributedDataParallelKwargs(**DATA_PARALLEL)
    return Accelerator(mixed_precision=mixed_precision, cpu=only_cpus, kwargs_handlers=[parallel])


def prepare(accelerator: Any, model: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, Any]:
    """``accelerator.prepare``, and in many processes :func:`keep_buffers`."""
    model, optimizer = accelerator.prepare(model, optimizer)
    return keep_buffers(model) if isinstance(model, DistributedDataParallel) else model, optimizer


def advance(schedule: LRScheduler, accelerator: Any) -> None:
    """Go on with the decay of the learning rate, except after a step that the gradient scaler of fp16 left out.

    The schedule has to be made before :func:`prepare`, or it cannot see the optimiser's steps.
    """
    if not accelerator.optimizer_step_was_skipped:
        schedule.step()


def keep_buffers(model: DistributedDataParallel) -> DistributedDataParallel:
    """Let each process keep its own running statistics instead of sending the first one's in every step: training does
    not read them, and evaluation takes the first one's (:func:`~tllib_ancon.training.passes.predict_domain`)."""
    model.broadcast_buffers = False
    return model


def lay_out(model: nn.Module, options: SpeedOptions) -> None:
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
            f"`sync_batch_norm` needs GPUs, and this run is on a {device.type.upper()}; leave it out: each process "
            "then normalises by its own batch"
        )
    synchronized: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    return synchronized
