"""Running statistics of batch-norm after an epoch: the moving average of training, or estimated anew."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.measures import selection
from tllib_ancon.models.batch_norm import estimated_statistics
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.interruption import Interruption
from tllib_ancon.training.checkpointing import copy_to_cpu
from tllib_ancon.training.passes import Passes
from tllib_ancon.training.step import AdaptationStep

STATISTICS_SAMPLE = 512
"""Images at most, from which batch-norm statistics are estimated after an epoch."""

LAGGING = 0.9
"""Fraction of the InfoMax with estimated statistics below which the moving average lags behind the weights."""


@dataclass(frozen=True)
class RunningStatistics:
    """The running statistics of mixed batch-norm, which follow the weights.

    Their moving average lags behind the weights in short epochs at a high rate. InfoMax of the same weights is then
    much lower than with estimated statistics. Elsewhere the moving average predicts as well or better, and stays.
    Training reads no running statistics. See ``benchmarks/results/harm.md``.

    Args:
        network: changed in place
        passes: its predictions
        training: images that are augmented as in training, because networks learn to predict plain images by the
            statistics of augmented ones
        step: which augments them on the device
        autocast: context of the forward passes
        interruption: ends them
    """

    network: Classifier
    passes: Passes
    training: ImageLoader
    step: AdaptationStep
    autocast: Callable[[], AbstractContextManager[Any]]
    interruption: Interruption

    def renew(self, epoch: int) -> None:
        """Estimate the statistics after an epoch if their moving average lags behind the weights."""
        moving = copy_to_cpu(self.network.state_dict())
        infomax_of_moving = self._infomax()
        self.estimate(epoch)
        if infomax_of_moving >= LAGGING * self._infomax():
            self.network.load_state_dict(moving)

    def estimate(self, epoch: int) -> None:
        """Estimate the statistics from training images."""
        count = -(-STATISTICS_SAMPLE // (self.training.batch_size * processes.world_size()))
        with estimated_statistics(self.network), torch.inference_mode(), self.autocast():
            for _, images in self.interruption.watch(islice(self.training, count), epoch):
                self.network.predict(self.step.augmented(images))

    def _infomax(self) -> float:
        self.passes.forget()
        return selection.infomax(self.passes.first_of_sample().logits.softmax(1))
