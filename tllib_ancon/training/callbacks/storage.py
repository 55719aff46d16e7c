"""What a run stores after an epoch."""

from collections.abc import Callable, Sequence

from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.runs.directory import RunDirectory
from tllib_ancon.runs.state import on_cpu
from tllib_ancon.runtime.types import Metrics
from tllib_ancon.self_training.method import Method
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.passes import Passes
from tllib_ancon.training.trainer import Trainer

IsBest = Callable[[Sequence[Metrics]], bool]
"""Metrics of all epochs -> whether the last one has the best model."""


class Storage(Callback):
    """Store the state of an epoch, and the model if it is the best one; without a run the best model, in memory.

    Args:
        run: where; None for in memory
        is_best: whether the last epoch has the best model
        keeps_source: whether the model of epoch 0 is stored, because it lies nowhere else
    """

    def __init__(self, run: RunDirectory | None, is_best: IsBest, keeps_source: bool = False):
        self.run = run
        self.is_best = is_best
        self.keeps_source = keeps_source

    def after_epoch(self, trainer: Trainer) -> None:
        is_best = self.is_best(trainer.metrics)
        if self.run is None:
            if is_best:
                trainer.best_weights = on_cpu(trainer.network.state_dict())
            return
        if self.keeps_source and trainer.epoch == 0:
            self.run.save_source(trainer.network.state_dict())
        self.run.save_epoch(trainer.snapshot(), trainer.metrics, is_best)


class BestPredictions(Callback):
    """Store the predictions of the best model on a labelled target, and the votes of its images.

    The file has a row for each of the N images of the target. Its arrays are positions in the list of the domain,
    logits (N, K), labels, features (N, D), votes (N, K) and paths. The votes of an image that was held out are 0.
    """

    def __init__(self, run: RunDirectory, is_best: IsBest, target: ImageSource, passes: Passes, method: Method):
        self.run = run
        self.is_best = is_best
        self.target = target
        self.passes = passes
        self.method = method

    def after_epoch(self, trainer: Trainer) -> None:
        if not self.is_best(trainer.metrics):
            return
        outputs = self.passes.target()  # which were made to score the epoch
        arrays = {
            "indices": self.target.positions,
            "logits": outputs.logits.cpu(),
            "labels": self.target.labels,
            "features": outputs.features.cpu(),
            "votes": self.passes.loaders.votes_of_the_target(self.method),
            "paths": self.target.paths,
        }
        self.run.save_predictions(arrays)
