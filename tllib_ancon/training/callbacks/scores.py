"""The scores of an epoch: without labels, and for the record by the labels of the target, where it has some. The method
gets the predictions that it needs."""

from typing import Any

import torch
from torch import Tensor

from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.measures import evaluation, selection
from tllib_ancon.runtime.types import Metrics, State
from tllib_ancon.self_training.method import Method
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.inference import Outputs
from tllib_ancon.training.passes import Passes
from tllib_ancon.training.trainer import Trainer


class Scores(Callback):
    """Add the scores of the current model to the record, and hand the method the predictions that it needs before an
    epoch, such as those of NRC's memories. Labels of the target reach the record alone.

    Args:
        target: the images, with labels if they have some
        passes: predictions of the model
        method: which may need predictions on all images before an epoch

    Attributes:
        first_labels: the classes that the source model predicts on the scored images
    """

    name = "scores"
    first_labels: Tensor

    def __init__(self, target: ImageSource, passes: Passes, method: Method):
        self.target = target
        self.passes = passes
        self.method = method

    def begin_epoch(self, trainer: Trainer) -> None:
        epoch = trainer.epoch - 1  # a method counts from 0
        if self.method.needs_pass(epoch):
            self.method.begin_epoch(epoch, *self.passes.adapted())
        self.passes.forget()

    def after_epoch(self, trainer: Trainer) -> None:
        """Score the current model, and replace what the record has of this epoch's scores."""
        self.passes.forget()
        next_epoch_needs_all = self.method.needs_pass(trainer.epoch) and not self.passes.num_held_out
        if self.target.labels is not None or next_epoch_needs_all:
            self.passes.target()
        metrics = trainer.metrics[-1]
        metrics |= self._without_labels(self.passes.scored(), trainer)
        if self.target.labels is not None:
            metrics |= self._by_labels()

    def _without_labels(self, scored: Outputs, trainer: Trainer) -> Metrics:
        """Scores of predictions on the hold-out or the sample; those of epoch 0 are the source model's."""
        labels = scored.logits.argmax(1).cpu()
        scores = selection.score_all(scored.logits.softmax(1)) | {"effective_classes": effective_classes(labels)}
        if trainer.epoch == 0:
            self.first_labels = labels
        scores["changed"] = float((labels != self.first_labels).float().mean())
        return scores

    def _by_labels(self) -> Metrics:
        scores = scores_by_labels(self.passes.target(), self.target)
        if self.passes.mirrors:
            scores["accuracy_one_view"] = scores_by_labels(self.passes.target_by_one_view(), self.target)["accuracy"]
        return scores

    def predictions(self) -> dict[str, Any]:
        """Arrays with a row for each of the N images of the target.

        They are positions in the list of the domain, logits (N, K), labels, features (N, D), votes (N, K) and paths.
        The votes of an image that was held out are 0.
        """
        outputs = self.passes.target()  # which were made to score the epoch
        return {
            "indices": self.target.positions,
            "logits": outputs.logits.cpu(),
            "labels": self.target.labels,
            "features": outputs.features.cpu(),
            "votes": self.passes.votes(self.method),
            "paths": self.target.paths,
        }

    def state_dict(self) -> State:
        return {"labels": self.first_labels}

    def load_state_dict(self, state: State) -> None:
        self.first_labels = state["labels"]


def effective_classes(labels: Tensor) -> float:
    """exp H(h), h the frequencies of the predicted classes (N,): K if all are predicted equally often."""
    frequencies = labels.bincount().double() / len(labels)
    return float(torch.special.entr(frequencies).sum().exp())


def scores_by_labels(predictions: Outputs, target: ImageSource) -> Metrics:
    """Scores of predictions on the target by its labels, for the record; none where it has no labels."""
    if target.labels is None:
        return {}
    labels = torch.from_numpy(target.labels)[predictions.indices]
    return evaluation.summarize(predictions.logits.cpu(), labels, target.num_classes)
