"""The guard against collapse: it hands out the best model after one, and ends the training."""

import math

from tllib_ancon.runs.state import copy_to_cpu
from tllib_ancon.runtime.errors import named
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.types import State
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.callbacks.scores import Scores
from tllib_ancon.training.collapse import Diversity, diversity_before_training, has_collapsed
from tllib_ancon.training.trainer import Trainer


class CollapseGuard(Callback):
    """Put the network back to its best model after a collapse, score it again, and end the training.

    The best model has the highest InfoMax, before training or after an epoch.

    Args:
        scores: of an epoch
        padding: pixels by which training shifts images
    """

    name = "guard"

    def __init__(self, scores: Scores, padding: int):
        self.scores = scores
        self.padding = padding
        self.best_weights: State = {}
        self.best_infomax = -math.inf
        self.best_epoch = 0

    def before_training(self, trainer: Trainer) -> None:
        if trainer.metrics and "infomax_collapsed" in trainer.metrics[-1]:
            trainer.stop_after_this_epoch()

    def begin_epoch(self, trainer: Trainer) -> None:
        if trainer.epoch == 1:
            self._remember(trainer, 0, diversity_before_training(trainer.metrics).infomax)

    def after_epoch(self, trainer: Trainer) -> None:
        if trainer.epoch == 0:
            return
        metrics = trainer.metrics[-1]
        after = Diversity(metrics["effective_classes"], metrics["infomax"])
        if not has_collapsed(after, diversity_before_training(trainer.metrics)):
            self._remember(trainer, trainer.epoch, after.infomax)
            return
        trainer.network.load_state_dict(self.best_weights)
        trainer.stop_after_this_epoch()
        trainer.tell(self._note(after, trainer))
        metrics |= {f"{name}_collapsed": value for name, value in after._asdict().items()}
        self.scores.score(trainer)

    def state_dict(self) -> State:
        return {"weights": self.best_weights, "infomax": self.best_infomax, "epoch": self.best_epoch}

    def load_state_dict(self, state: State) -> None:
        self.best_weights = state["weights"]
        self.best_infomax = state["infomax"]
        self.best_epoch = state["epoch"]

    def _remember(self, trainer: Trainer, epoch: int, infomax: float) -> None:
        """Keep the model after an epoch, or before the first one, if it is the best so far."""
        if infomax > self.best_infomax:
            self.best_weights = copy_to_cpu(trainer.network.state_dict())
            self.best_infomax = infomax
            self.best_epoch = epoch

    def _note(self, after: Diversity, trainer: Trainer) -> Note:
        """Describe the collapse of the current epoch."""
        before = diversity_before_training(trainer.metrics)
        model = f"of epoch {self.best_epoch}" if self.best_epoch else "before training"
        mixing_weight = trainer.metrics[1].get("batch_norm_share", 0.0)
        return Note(
            "collapse",
            f"epoch {trainer.epoch} collapsed: the effective number of predicted classes fell from "
            f"{before.effective_classes:.1f} before training to {after.effective_classes:.1f}, InfoMax from "
            f"{before.infomax:.2f} to {after.infomax:.2f}. Training ends with the model {model}, whose InfoMax of "
            f"{self.best_infomax:.2f} is the highest",
            setting="padding" if self.padding else "lr",
            action=f"{_remedy(mixing_weight, self.padding)} may prevent it",
            level="warning",
        )


def _remedy(mixing_weight: float, padding: int) -> str:
    if padding:
        return f"images that training does not shift ({named('padding', 0)})"
    lower_rate = f"a smaller {named('lr')}"
    if mixing_weight > 0:
        target = named("batch_norm", "target")
        return f"{target} in place of statistics mixed with weight {mixing_weight:.2f}, or {lower_rate},"
    return lower_rate
