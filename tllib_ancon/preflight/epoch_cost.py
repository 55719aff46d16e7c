"""Fact about the time and memory of one epoch, estimated from two training steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tllib_ancon.data.loading import hold_out
from tllib_ancon.data.transforms import mirror
from tllib_ancon.models.batch_norm import BatchNormPolicy, has_statistics
from tllib_ancon.preflight.case import Case
from tllib_ancon.preflight.fact import LOOK, WRONG, Fact
from tllib_ancon.preflight.rehearsal import Rehearsal
from tllib_ancon.runtime.errors import named
from tllib_ancon.runtime.text import counted
from tllib_ancon.training import devices
from tllib_ancon.training.callbacks.statistics import STATISTICS_SAMPLE
from tllib_ancon.training.target_loaders import SAMPLE

SETTINGS = ("batch_size", "epochs", "workers")

AVERAGES = {"sgd": 1, "adamw": 2}
"""Tensors that an optimiser keeps for each parameter."""


@dataclass(frozen=True)
class _Epoch:
    """Numbers of images in one epoch of an adaptation."""

    batch_size: int
    steps: int
    predicted: int  # after the steps, for scores without labels, accuracy and batch-norm statistics

    @property
    def trained(self) -> int:
        return self.steps * self.batch_size


def cost(case: Case, rehearsal: Rehearsal) -> Fact:
    """Estimated time and memory of one epoch."""
    tried = rehearsal.steps
    if tried.error:
        return Fact(f"a training step fails: {tried.error}", {"error": tried.error}, SETTINGS, WRONG)
    epoch = _epoch_of(case)
    epochs = case.config.epochs
    step_seconds = epoch.batch_size * tried.seconds
    load_seconds = epoch.batch_size * tried.load_seconds
    seconds = _epoch_seconds(case, rehearsal, epoch)
    memory = _training_memory(case, rehearsal, epoch)
    device = "CPU"
    free = devices.free_memory()
    if torch.cuda.is_available():
        device = "GPU"
        free = int(torch.cuda.mem_get_info()[0])
    text = (
        f"an epoch takes about {_duration(seconds)} and {_storage(memory)} on this {device}, "
        f"{counted(epochs, 'epoch')} {_duration(epochs * seconds)}; {counted(epoch.steps, 'step')} of "
        f"{counted(epoch.batch_size, 'image')}, {_duration(step_seconds)} each, loading {_duration(load_seconds)}"
    )
    values = {
        "seconds": seconds,
        "bytes": memory,
        "steps": epoch.steps,
        "batch_size": epoch.batch_size,
        "predicted_images": epoch.predicted,
        "step_seconds": step_seconds,
        "load_seconds": load_seconds,
    }
    if memory > free:
        text += f"; {_storage(free)} are free: pass a smaller {named('batch_size')}"
        return Fact(text, values, SETTINGS, LOOK)
    return Fact(text, values, SETTINGS)


def _epoch_of(case: Case) -> _Epoch:
    config = case.config
    adapted, held_out = hold_out(len(case.target), config.held_out_share, config.seed)
    steps = max(len(adapted) // config.batch_size, 1)
    predicted = len(held_out) or min(len(adapted), SAMPLE)
    if case.labelled:
        passes = 1
        if config.views == 2 and case.transforms.second_view is mirror:
            passes = 2
        predicted = passes * len(case.target)
    if BatchNormPolicy(config.batch_norm).mixes and has_statistics(case.network):
        predicted += min(STATISTICS_SAMPLE, len(adapted))
    return _Epoch(config.batch_size, steps, predicted)


def _epoch_seconds(case: Case, rehearsal: Rehearsal, epoch: _Epoch) -> float:
    """Time to train and to predict. Workers load images while a GPU computes; on a CPU they share its cores."""
    computing = epoch.trained * rehearsal.steps.seconds + epoch.predicted * rehearsal.predict_seconds
    loading = (epoch.trained + epoch.predicted) * rehearsal.steps.load_seconds
    if torch.cuda.is_available() and case.config.workers:
        return max(computing, loading)
    return computing + loading


def _training_memory(case: Case, rehearsal: Rehearsal, epoch: _Epoch) -> int:
    """Bytes of weights, gradients, the optimiser's averages, and what a forward pass stores."""
    parameters = list(case.network.parameters())
    weights = sum(_num_bytes(tensor) for tensor in [*parameters, *case.network.buffers()])
    learning = sum(_num_bytes(parameter) for parameter in parameters if parameter.requires_grad)
    gradients_and_averages = (1 + AVERAGES[case.config.optimizer]) * learning
    return weights + gradients_and_averages + round(epoch.batch_size * rehearsal.steps.activation_bytes)


def _num_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def _storage(number: int) -> str:
    """Bytes in MB or GB."""
    if number < 1e6:
        return "less than 1 MB"
    if number < 1e9:
        return f"{number / 1e6:.0f} MB"
    return f"{number / 1e9:.1f} GB"
