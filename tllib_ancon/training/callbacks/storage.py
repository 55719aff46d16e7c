"""What a run stores after an epoch."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tllib_ancon.runs.directory import SOURCE
from tllib_ancon.runs.state import on_cpu, take_snapshot
from tllib_ancon.runtime.processes import on_main
from tllib_ancon.runtime.types import Metrics
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.trainer import Trainer


class Storage(Callback):
    """Store the state of an epoch, and the model if it is the best one; without a run the best model, in memory.

    Args:
        is_best: metrics of all epochs -> whether the last one has the best model
        keeps_source: whether the model of epoch 0 is stored, because it lies nowhere else
        predictions: arrays to store with the best model. Default: none
    """

    def __init__(
        self,
        is_best: Callable[[Sequence[Metrics]], bool],
        keeps_source: bool = False,
        predictions: Callable[[], Mapping[str, Any]] | None = None,
    ):
        self.is_best = is_best
        self.keeps_source = keeps_source
        self.predictions = predictions

    def after_epoch(self, trainer: Trainer) -> None:
        is_best = self.is_best(trainer.metrics)
        if trainer.run is None:
            if is_best:
                trainer.best_weights = on_cpu(trainer.network.state_dict())
            return
        if self.keeps_source and trainer.epoch == 0:
            on_main(trainer.run.write_weights)(SOURCE, trainer.network.state_dict())
        if is_best and self.predictions is not None:
            trainer.run.save_predictions(self.predictions())
        trainer.run.save_epoch(take_snapshot(trainer.parts), trainer.metrics, is_best)
