"""What a run stores after an epoch."""

from collections.abc import Callable, Sequence

from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.runs.directory import MemoryRun
from tllib_ancon.runs.predictions import predictions_of
from tllib_ancon.runtime.types import Metrics
from tllib_ancon.self_training.method import Method
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.passes import Passes
from tllib_ancon.training.trainer import Trainer

IsBest = Callable[[Sequence[Metrics]], bool]
"""Metrics of all epochs -> whether the last one has the best model."""


class Storage(Callback):
    """Store the state of an epoch, and the model if it is the best one."""

    def __init__(self, run: MemoryRun, is_best: IsBest):
        self.run = run
        self.is_best = is_best

    def after_epoch(self, trainer: Trainer) -> None:
        self.run.save_epoch(trainer.snapshot(), trainer.metrics, self.is_best(trainer.metrics))


class SourceModel(Callback):
    """Store the source model after epoch 0, for a run whose source model lies nowhere else."""

    def __init__(self, run: MemoryRun):
        self.run = run

    def after_epoch(self, trainer: Trainer) -> None:
        if trainer.epoch == 0:
            self.run.save_source(trainer.network.state_dict())


class BestPredictions(Callback):
    """Store the predictions of the best model on the target, and the votes of its images."""

    def __init__(self, run: MemoryRun, is_best: IsBest, target: ImageSource, passes: Passes, method: Method):
        self.run = run
        self.is_best = is_best
        self.target = target
        self.passes = passes
        self.method = method

    def after_epoch(self, trainer: Trainer) -> None:
        if self.is_best(trainer.metrics):
            outputs = self.passes.target()
            trainer.require_finite(outputs.logits)
            votes = self.passes.loaders.votes_of_the_target(self.method)
            target = self.target
            self.run.save_predictions(
                predictions_of(target.positions, outputs.logits, outputs.features, target.labels, votes, target.paths)
            )
