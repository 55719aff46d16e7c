"""The line of an epoch that users see."""

from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.trainer import Trainer


class EpochLine(Callback):
    """Show a line for each epoch."""

    def __init__(self, title: str = "epoch"):
        self.title = title

    def after_epoch(self, trainer: Trainer) -> None:
        trainer.progress.epoch(self.title, trainer.metrics[-1], trainer.last_epoch)
