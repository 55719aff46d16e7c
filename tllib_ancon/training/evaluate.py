"""The accuracy and the label-free scores of a model on the images of a domain."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.config.settings import settings_of_call
from tllib_ancon.data.readers import Loader
from tllib_ancon.data.transforms import Transform
from tllib_ancon.measures import evaluation, selection
from tllib_ancon.models.copies import recording_gradients
from tllib_ancon.models.output import Output
from tllib_ancon.models.references import Model
from tllib_ancon.runtime import devices
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.text import Shown, showable
from tllib_ancon.runtime.types import Metrics
from tllib_ancon.training.not_finite import require_predictions
from tllib_ancon.training.predict import open_to_predict, predict_images

WIDEST_NAME = 30
"""Characters of a class name in the table."""


@dataclass(frozen=True, repr=False)
class Evaluation(Shown):
    """Scores of a model on N images; ``print`` shows them in a few lines.

    Attributes:
        scores: by name: ``images`` (N), and without labels ``infomax``, ``corr_c`` and ``mean_entropy``. With labels
            also ``accuracy``, ``mean_class_accuracy`` and ``per_class_accuracy`` in percent, and ``ece`` in [0, 1].
        classes: names of the K classes
        confusion: (K, K) numbers of images, a row for each true class and a column for each predicted one; None
            without labels
        notes: what was decided about the model, the images and the settings, and what the predictions show
    """

    scores: Metrics
    classes: Sequence[str]
    confusion: NDArray[np.int64] | None = None
    notes: Sequence[Note] = ()

    @property
    def accuracy(self) -> float | None:
        """In percent; None without labels."""
        return self.scores.get("accuracy")

    @property
    def ece(self) -> float | None:
        """Expected calibration error of 15 bins, in [0, 1]; None without labels."""
        return self.scores.get("ece")

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Lines for people, with a table of the classes where labels are known."""
        scores = self.scores
        if "accuracy" in scores:
            yield f"accuracy             {scores['accuracy']:.2f} %"
            yield f"mean class accuracy  {scores['mean_class_accuracy']:.2f} %"
            yield f"ECE (15 bins)        {scores['ece']:.4f}"
        yield f"scores without labels, over all {scores['images']:,} images:"
        for name in selection.CRITERIA:
            yield f"{name:<20} {scores[name]:.4f}"
        if self.confusion is not None:
            yield from self._class_table(self.confusion)

    def _class_table(self, confusion: NDArray[np.int64]) -> Iterator[str]:
        """A line for each class that has images: their number, the accuracy and the most frequent mistake."""
        names = [showable(name)[:WIDEST_NAME] for name in self.classes]
        width = max(len("class"), *map(len, names))
        yield f"{'class':<{width}}  images  accuracy  most frequent mistake"
        for label in np.flatnonzero(confusion.sum(1)).tolist():
            row = confusion[label].copy()
            num_images = int(row.sum())
            accuracy = 100 * row[label] / num_images
            row[label] = 0
            mistake = ""
            if row.any():
                mistake = f"  {names[int(row.argmax())]} ({row.max():,})"
            yield f"{names[label]:<{width}}  {num_images:>6,}  {accuracy:>6.2f} %{mistake}"


@recording_gradients()
def evaluate(
    model: Model | None = None,
    images: Any = None,
    *,
    labels: ArrayLike | bool | None = None,
    output: Output | None = None,
    evaluation_transform: Transform | None = None,
    loader: Loader | None = None,
    config: PredictConfig | None = None,
    **settings: Any,
) -> Evaluation:
    """Score a model on images: its accuracy and calibration from labels, and criteria without labels.

    Args:
        model, output, evaluation_transform, loader: as for :func:`tllib_ancon.predict`. Default: what ``checkpoint`` in
            the settings names
        images: as for :func:`tllib_ancon.predict`. Default: the domain that ``root``, ``data`` and ``target`` in the
            settings name
        labels: (N,) classes in [0, K). Default: those of class folders or of a named dataset;
            those in the items of a dataset of torch are not read
        config: all settings at once
        **settings: of :class:`~tllib_ancon.config.predict.PredictConfig`, such as ``batch_size=64``

    Returns: the scores

    Raises:
        UserError: a setting, model, image or label that cannot be used (which, why, what to do)

    Example::

        >>> tllib_ancon.evaluate(model, "photos/", labels=labels).accuracy
    """
    requested = settings_of_call(PredictConfig, config, settings).with_paths(checkpoint=model)
    with devices.restoring_state(requested.threads):
        opened = open_to_predict(model, images, requested, labels, output, evaluation_transform, loader)
        predictions = predict_images(opened)
        require_predictions(predictions.labels, opened.images)
        domain = opened.images
        logits = torch.from_numpy(predictions.logits)
        confusion = None
        scores: Metrics = {"images": len(domain), **selection.score_all(logits.softmax(1))}
        if domain.labels is not None:
            scores |= evaluation.summarize(logits, torch.from_numpy(domain.labels), domain.num_classes)
            confusion = np.zeros((domain.num_classes, domain.num_classes), dtype=np.int64)
            np.add.at(confusion, (domain.labels, predictions.labels), 1)
        return Evaluation(scores, domain.classes, confusion, predictions.notes)
