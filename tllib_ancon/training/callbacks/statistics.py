"""Batch-norm statistics of an adaptation: prepared before the first step."""

from torch import Tensor

from tllib_ancon.measures import selection
from tllib_ancon.models.batch_norm import BatchNormPolicy
from tllib_ancon.runtime.errors import named
from tllib_ancon.runtime.notes import Note
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.callbacks.scores import effective_classes
from tllib_ancon.training.passes import Passes
from tllib_ancon.training.trainer import Trainer


class PreparedStatistics(Callback):
    """Estimate the statistics from the sample before the first epoch, all that AdaBN does, and mix the source model's
    into scale and shift."""

    def __init__(self, policy: BatchNormPolicy, passes: Passes):
        self.policy = policy
        self.passes = passes

    def begin_epoch(self, trainer: Trainer) -> None:
        """Add the weight, and the diversity of the predictions before training, to the record of epoch 1."""
        if trainer.epoch > 1:
            return
        numbers = self.policy.prepare(trainer.network, self._predict_sample)
        if numbers["batch_norm_late_share"] == 1 > numbers["batch_norm_share"]:
            trainer.tell(
                Note(
                    "classes-missing",
                    "classes seem to be missing or rare: the later half of the layers keeps the source's statistics",
                    "batch_norm",
                    f"pass {named('batch_norm', 'target')} if all classes occur",
                )
            )
        if not trainer.trains:
            return
        logits = self.passes.scored().logits
        trainer.metrics[-1] |= {
            **numbers,
            "effective_classes_before": effective_classes(logits.argmax(1).cpu()),
            "infomax_before": selection.infomax(logits.softmax(1)),
        }

    def _predict_sample(self) -> Tensor:
        self.passes.forget()
        return self.passes.sample().logits
