"""The scores of an epoch: without labels, and for the record by the labels of the target, where it has some."""

from torch import Tensor

from tllib_ancon.measures import indicators, selection
from tllib_ancon.runtime.types import Metrics
from tllib_ancon.self_training.checks import PROBABILITIES, are_probabilities
from tllib_ancon.training.checkpointing import StoredTensors
from tllib_ancon.training.collapse import Diversity
from tllib_ancon.training.inference import Outputs, scorer_by_labels, scores_under_dropout
from tllib_ancon.training.passes import Passes
from tllib_ancon.training.plan import Plan


class EpochScores:
    """Scores of predictions of the current model. Labels of the target reach the record alone.

    Attributes:
        score_by_labels: predictions on the target -> their scores; None where it has no labels
        first_predictions: ``"labels"``: the classes that the source model predicts on the scored images
    """

    def __init__(self, plan: Plan):
        self.score_by_labels = scorer_by_labels(plan.target)
        self.plan = plan
        self.first_predictions = StoredTensors()

    def without_labels(self, scored: Outputs, epoch: int) -> Metrics:
        """Scores of predictions on the hold-out or the sample; those of epoch 0 are the source model's."""
        labels = scored.logits.argmax(1).cpu()
        scores = selection.score_all(scored.logits.softmax(1))
        scores["effective_classes"] = Diversity.of(scored.logits).effective_classes
        if epoch == 0:
            scores |= self._of_the_source_model(scored, labels)
        first_labels = self.first_predictions.setdefault("labels", labels)
        scores["changed"] = float((labels != first_labels).float().mean())
        return scores

    def _of_the_source_model(self, scored: Outputs, labels: Tensor) -> Metrics:
        if are_probabilities(scored.logits):
            self.plan.progress.line(PROBABILITIES)
        model = self.plan.model
        statistics = self.plan.source.statistics
        scores = indicators.indicators(labels, model.num_classes, scored.features.cpu(), statistics)
        return scores | scores_under_dropout(scored, model.head)

    def by_labels(self, passes: Passes) -> Metrics:
        """Scores of the predictions on the target; none where it has no labels."""
        if self.score_by_labels is None:
            return {}
        scores = self.score_by_labels(passes.target())
        if passes.mirrors:
            scores["accuracy_one_view"] = self.score_by_labels(passes.target_by_one_view())["accuracy"]
        return scores
