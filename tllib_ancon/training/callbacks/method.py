"""The predictions that a method needs before an epoch, such as those of NRC's memories."""

from tllib_ancon.self_training.method import Method
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.passes import Passes
from tllib_ancon.training.trainer import Trainer


class MethodPredictions(Callback):
    """Hand a method the predictions that it needs before each epoch."""

    def __init__(self, method: Method, passes: Passes):
        self.method = method
        self.passes = passes

    def begin_epoch(self, trainer: Trainer) -> None:
        epoch = trainer.epoch - 1  # a method counts from 0
        if self.method.needs_pass(epoch):
            self.method.begin_epoch(epoch, *self.passes.adapted())
        self.passes.forget()
