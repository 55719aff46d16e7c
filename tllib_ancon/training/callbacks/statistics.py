"""Batch-norm statistics of an adaptation: prepared before the first step, and estimated again where they lag."""

from itertools import islice

import torch
from torch import Tensor

from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.measures import selection
from tllib_ancon.models.batch_norm import BatchNormPolicy, estimated_statistics
from tllib_ancon.runs.state import on_cpu
from tllib_ancon.runtime import processes
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.callbacks.scores import Scores, effective_classes
from tllib_ancon.training.passes import Passes
from tllib_ancon.training.step import AdaptationStep
from tllib_ancon.training.trainer import Trainer

STATISTICS_SAMPLE = 512
"""Images at most, from which batch-norm statistics are estimated after an epoch."""

LAGGING = 0.9
"""Fraction of the InfoMax with estimated statistics below which the moving average lags behind the weights."""


class EstimatedStatistics(Callback):
    """Estimate all batch-norm statistics from the sample before the first epoch: all that AdaBN does."""

    def __init__(self, policy: BatchNormPolicy, passes: Passes):
        self.policy = policy
        self.passes = passes

    def begin_epoch(self, trainer: Trainer) -> None:
        if trainer.epoch > 1:
            return
        self.passes.forget()
        with self.policy.estimated(trainer.network):
            self.passes.sample()
        self.passes.forget()


class MixedStatistics(Callback):
    """Mix the source model's statistics into scale and shift before the first step, with a weight from the sample."""

    def __init__(self, policy: BatchNormPolicy, passes: Passes, scores: Scores):
        self.policy = policy
        self.passes = passes
        self.scores = scores

    def begin_epoch(self, trainer: Trainer) -> None:
        """Add the weight, and the diversity of the predictions before training, to the record of epoch 1."""
        if trainer.epoch > 1:
            return
        labels = None if self.passes.num_held_out else self.scores.first_labels
        numbers = self.policy.prepare(trainer.network, self._predict_sample, labels)
        logits = self.passes.scored().logits
        trainer.metrics[-1] |= {
            **numbers,
            "effective_classes_before": effective_classes(logits.argmax(1).cpu()),
            "infomax_before": selection.infomax(logits.softmax(1)),
        }

    def _predict_sample(self) -> Tensor:
        self.passes.forget()
        return self.passes.sample().logits


class RenewedStatistics(Callback):
    """Estimate the running statistics of mixed batch-norm after an epoch, if their moving average lags.

    In short epochs at a high rate the moving average lags behind the weights. InfoMax of the same weights is then much
    lower than with estimated statistics. Elsewhere the moving average predicts as well or better, and stays. Training
    reads no running statistics. See ``benchmarks/tried.md``.

    Args:
        passes: predictions of the network
        training: images that are augmented as in training, because networks learn to predict plain images by the
            statistics of augmented ones
        step: which augments them on the device
    """

    def __init__(self, passes: Passes, training: ImageLoader, step: AdaptationStep):
        self.passes = passes
        self.training = training
        self.step = step

    def after_epoch(self, trainer: Trainer) -> None:
        if trainer.epoch == 0 or not trainer.trains:
            return
        moving = on_cpu(trainer.network.state_dict())
        infomax_of_moving = self._infomax()
        self._estimate(trainer)
        if infomax_of_moving >= LAGGING * self._infomax():
            trainer.network.load_state_dict(moving)

    def _estimate(self, trainer: Trainer) -> None:
        count = -(-STATISTICS_SAMPLE // (self.training.batch_size * processes.world_size()))
        with estimated_statistics(trainer.network), torch.inference_mode(), trainer.autocast():
            for _, images in trainer.watch(islice(self.training, count)):
                trainer.network.predict(self.step.augmented(images))

    def _infomax(self) -> float:
        self.passes.forget()
        return selection.infomax(self.passes.sample().logits.softmax(1))
