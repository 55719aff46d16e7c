"""The guard against collapse: it hands out the best model after one, and ends the training. It tells of a model that is
too unsure to teach itself."""

import math
from collections.abc import Sequence

from tllib_ancon.runs.state import on_cpu
from tllib_ancon.runtime.errors import named
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.types import Metrics, State
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.callbacks.scores import Scores
from tllib_ancon.training.trainer import Trainer

REMAINING_CLASSES = 0.9
"""Fraction of the effective number of classes below which it has fallen."""

REMAINING_INFOMAX = 0.5
"""Fraction of InfoMax below which it has fallen. Of ten classes that a source model predicts equally often and with
certainty, four may be left: InfoMax then falls to log 4 / log 10 = 0.6 of its value without a collapse. See
``benchmarks/tried.md``."""


class CollapseGuard(Callback):
    """Put the network back to its best model after a collapse, score it again, and end the training.

    The best model has the highest InfoMax, before training or after an epoch.

    Args:
        scores: of an epoch
    """

    name = "guard"

    def __init__(self, scores: Scores):
        self.scores = scores
        self.best_weights: State = {}
        self.best_infomax = -math.inf
        self.best_epoch = 0

    def before_training(self, trainer: Trainer) -> None:
        if trainer.metrics and "infomax_collapsed" in trainer.metrics[-1]:
            trainer.stop_after_this_epoch()

    def begin_epoch(self, trainer: Trainer) -> None:
        if trainer.epoch == 1:
            self._remember(trainer, 0, before_training(trainer.metrics)["infomax"])

    def after_epoch(self, trainer: Trainer) -> None:
        if trainer.epoch == 0:
            return
        metrics = trainer.metrics[-1]
        if trainer.epoch == 1 and metrics.get("sure") == 0:
            text = "the model is unsure of all batches, which teach nothing: its predictions are far from certain"
            action = "adapt a better source model: other methods learn from this one, and may harm it"
            trainer.tell(Note("unsure", text, "method", action, "warning"))
        if not _has_collapsed(metrics, before_training(trainer.metrics)):
            self._remember(trainer, trainer.epoch, metrics["infomax"])
            return
        trainer.network.load_state_dict(self.best_weights)
        trainer.stop_after_this_epoch()
        trainer.tell(self._note(trainer.metrics))
        for name in ("effective_classes", "infomax"):
            metrics[f"{name}_collapsed"] = metrics[name]
        self.scores.after_epoch(trainer)

    def state_dict(self) -> State:
        return {"weights": self.best_weights, "infomax": self.best_infomax, "epoch": self.best_epoch}

    def load_state_dict(self, state: State) -> None:
        self.best_weights = state["weights"]
        self.best_infomax = state["infomax"]
        self.best_epoch = state["epoch"]

    def _remember(self, trainer: Trainer, epoch: int, infomax: float) -> None:
        """Keep the model after an epoch, or before the first one, if it is the best so far."""
        if infomax > self.best_infomax:
            self.best_weights = on_cpu(trainer.network.state_dict())
            self.best_infomax = infomax
            self.best_epoch = epoch

    def _note(self, epochs: Sequence[Metrics]) -> Note:
        """Describe the collapse of the last epoch."""
        before = before_training(epochs)
        after = epochs[-1]
        return Note(
            "collapse",
            f"epoch {after['epoch']} collapsed: the effective number of predicted classes fell from "
            f"{before['effective_classes']:.1f} before training to {after['effective_classes']:.1f}. Training ends "
            f"with the model of epoch {self.best_epoch}, whose InfoMax is the highest",
            setting="lr",
            action=f"a smaller {named('lr')} may prevent it, and where small images are shifted {named('padding', 0)}",
            level="warning",
        )


def before_training(epochs: Sequence[Metrics]) -> Metrics:
    """Diversity of the model whose batch-norm statistics are mixed, or of the source model."""
    first_epoch = epochs[1]
    if "infomax_before" in first_epoch:
        return {name: first_epoch[f"{name}_before"] for name in ("effective_classes", "infomax")}
    return epochs[0]


def _has_collapsed(after: Metrics, before: Metrics) -> bool:
    """Whether fewer classes are predicted than before training, and InfoMax is below half of its value.

    Fewer classes alone are no collapse: where classes are missing in the target, adaptation predicts them less often.
    A lower InfoMax alone is none either: predictions may only be less certain. The agreement of two views does not
    serve, because a model that predicts one class agrees with itself.
    """
    predicts_fewer_classes = after["effective_classes"] < REMAINING_CLASSES * before["effective_classes"]
    return bool(predicts_fewer_classes and after["infomax"] < REMAINING_INFOMAX * before["infomax"])
