"""The learning rate, fitted before the first step."""

import copy
from itertools import islice

from tllib_ancon.models.classifier import trainable
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.rate import PAIRS, fitted_rate
from tllib_ancon.training.step import AdaptationStep
from tllib_ancon.training.trainer import Trainer


class FittedRate(Callback):
    """Set the learning rate of all parameters to the fitted one, at most the setting ``lr``, before the first step.

    The trial steps leave network and method as they were.

    Args:
        step: loss of a step
        step_change: part of the difference of two views by which a step may change predictions
    """

    def __init__(self, step: AdaptationStep, step_change: float):
        self.step = step
        self.step_change = step_change

    def begin_epoch(self, trainer: Trainer) -> None:
        if trainer.epoch > 1:
            return
        network = trainer.network
        method = self.step.method
        self.step.set_mode(network)
        state_of_network = copy.deepcopy(network.state_dict())
        state_of_method = copy.deepcopy(method.state_dict())
        batches = zip(*trainer.loaders, strict=False)
        fitted = fitted_rate(
            method.step_multiple(self.step.num_views) * self.step_change,
            [*islice(batches, PAIRS + 1)],
            trainable(network),
            lambda batch: self.step(*batch)[0],
            lambda batch: self.step.probabilities(*batch),
        )
        network.load_state_dict(state_of_network)
        method.load_state_dict(state_of_method)
        rate = min(fitted, trainer.options.lr)
        trainer.set_rate(rate)
        trainer.metrics[-1]["lr"] = rate
