"""The scores of an epoch: without labels, and for the record by the labels of the target, where it has some."""

import torch
from torch import Tensor

from tllib_ancon.data.domain import Domain
from tllib_ancon.measures import evaluation, selection
from tllib_ancon.runtime.types import Metrics, State
from tllib_ancon.self_training.checks import PROBABILITIES, are_probabilities
from tllib_ancon.training.collapse import Diversity
from tllib_ancon.training.inference import Outputs
from tllib_ancon.training.passes import Passes
from tllib_ancon.training.plan import Plan


class EpochScores:
    """Scores of predictions of the current model. Labels of the target reach the record alone.

    Attributes:
        first_labels: the classes that the source model predicts on the scored images, which a run stores
    """

    first_labels: Tensor

    def __init__(self, plan: Plan):
        self.plan = plan

    def without_labels(self, scored: Outputs, epoch: int) -> Metrics:
        """Scores of predictions on the hold-out or the sample; those of epoch 0 are the source model's."""
        labels = scored.logits.argmax(1).cpu()
        scores = selection.score_all(scored.logits.softmax(1))
        scores["effective_classes"] = Diversity.of(scored.logits).effective_classes
        if epoch == 0:
            self.first_labels = labels
            if are_probabilities(scored.logits):
                self.plan.progress.line(PROBABILITIES)
        scores["changed"] = float((labels != self.first_labels).float().mean())
        return scores

    def by_labels(self, passes: Passes) -> Metrics:
        """Scores of the predictions on a target that has labels."""
        target = self.plan.target
        scores = scores_by_labels(passes.target(), target)
        if passes.mirrors:
            scores["accuracy_one_view"] = scores_by_labels(passes.target_by_one_view(), target)["accuracy"]
        return scores

    def state_dict(self) -> State:
        return {"labels": self.first_labels}

    def load_state_dict(self, state: State) -> None:
        self.first_labels = state["labels"]


def scores_by_labels(predictions: Outputs, target: Domain) -> Metrics:
    """Scores of predictions on the target by its labels, for the record; none where it has no labels."""
    if target.labels is None:
        return {}
    labels = torch.from_numpy(target.labels)[predictions.indices]
    return evaluation.summarize(predictions.logits.cpu(), labels, target.num_classes)
