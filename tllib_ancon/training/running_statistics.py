"""Running statistics of batch-norm after an epoch: the moving average of training, or estimated anew."""

from collections.abc import Callable
from dataclasses import dataclass

from tllib_ancon.measures import selection
from tllib_ancon.models.batch_norm import estimated_statistics
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.training.checkpointing import copy_to_cpu
from tllib_ancon.training.passes import Passes

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
        predict_training_images: epoch -> None; predicts images that are augmented as in training, because networks
            learn to predict plain images by the statistics of augmented ones
    """

    network: Classifier
    passes: Passes
    predict_training_images: Callable[[int], None]

    def renew(self, epoch: int) -> None:
        """Estimate the statistics after an epoch if their moving average lags behind the weights."""
        moving = copy_to_cpu(self.network.state_dict())
        infomax_of_moving = self._infomax()
        self.estimate(epoch)
        if infomax_of_moving >= LAGGING * self._infomax():
            self.network.load_state_dict(moving)

    def estimate(self, epoch: int) -> None:
        """Estimate the statistics from training images."""
        with estimated_statistics(self.network):
            self.predict_training_images(epoch)

    def _infomax(self) -> float:
        self.passes.forget()
        return selection.infomax(self.passes.first_of_sample().logits.softmax(1))
