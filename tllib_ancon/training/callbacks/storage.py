"""What a run stores after an epoch."""

from collections.abc import Callable, Mapping
from typing import Any

from tllib_ancon.runs.directory import SOURCE
from tllib_ancon.runs.state import on_cpu, take_snapshot
from tllib_ancon.runtime.processes import on_main
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.trainer import Trainer


class Storage(Callback):
    """Store the state of an epoch, and the model if the result selects it; without a run this model, in memory.

    Args:
        selects: whether the result selects an epoch, or takes the last one
        keeps_source: whether the model of epoch 0 is stored, because it lies nowhere else
        predictions: arrays to store with the selected model. Default: none
    """

    def __init__(
        self,
        selects: bool = True,
        keeps_source: bool = False,
        predictions: Callable[[], Mapping[str, Any]] | None = None,
    ):
        self.selects = selects
        self.keeps_source = keeps_source
        self.predictions = predictions

    def after_epoch(self, trainer: Trainer) -> None:
        is_selected = False
        if self.selects and trainer.epoch > 0:
            is_selected = trainer.result_of(trainer.metrics)["selected"] is trainer.metrics[-1]
        if trainer.run is None:
            if is_selected:
                trainer.best_weights = on_cpu(trainer.network.state_dict())
            return
        if self.keeps_source and trainer.epoch == 0:
            on_main(trainer.run.write_weights)(SOURCE, trainer.network.state_dict())
        if is_selected and self.predictions is not None:
            trainer.run.save_predictions(self.predictions())
        trainer.run.save_epoch(take_snapshot(trainer.parts), trainer.metrics, is_selected)
