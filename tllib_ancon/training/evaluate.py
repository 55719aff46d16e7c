"""The accuracy and the label-free scores of a model on the images of a domain."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import ArrayLike

from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.config.settings import settings_of_call
from tllib_ancon.data.layouts.arrays import Arrays
from tllib_ancon.data.readers import Loader
from tllib_ancon.data.transforms import Transform
from tllib_ancon.measures import evaluation, selection
from tllib_ancon.models.copies import recording_gradients
from tllib_ancon.models.output import Output
from tllib_ancon.models.references import Model
from tllib_ancon.opening.open import Opened, open_images, open_model, source_checkpoint
from tllib_ancon.opening.transforms import TransformRule
from tllib_ancon.runs.directory import RunDirectory
from tllib_ancon.runtime import devices
from tllib_ancon.runtime.errors import BadImages, named
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.text import Shown
from tllib_ancon.runtime.types import Metrics
from tllib_ancon.training.confusion import Confusion, class_table
from tllib_ancon.training.not_finite import require_predictions
from tllib_ancon.training.predict import Predictions, predict_images
from tllib_ancon.training.progress import Progress


@dataclass(frozen=True, repr=False)
class Evaluation(Shown):
    """Scores of a model on N images; ``print`` shows them in a few lines.

    Attributes:
        scores: by name: ``images`` (N), and without labels ``infomax``, ``corr_c`` and ``mean_entropy``. With labels
            also ``accuracy``, ``mean_class_accuracy`` and ``per_class_accuracy`` in percent, and ``ece`` in [0, 1].
            With a source ``source_accuracy``
        classes: names of the K classes
        confusion: (K, K) numbers of images, a row for each true class and a column for each predicted one; None
            without labels
        notes: what was decided about the model, the images and the settings, and what the predictions show
    """

    scores: Metrics
    classes: Sequence[str]
    confusion: Confusion | None = None
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
        if "source_accuracy" in scores:
            yield _source_line(scores["source_accuracy"])
        if self.confusion is not None:
            yield from class_table(self.confusion, self.classes)


@recording_gradients()
def evaluate(
    model: Model | None = None,
    images: Any = None,
    *,
    labels: ArrayLike | bool | None = None,
    source: Any = None,
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
        source: labelled images of the source, or the name of such a folder or domain: the accuracy on them, for a run
            also that of its source model. Default: none
        config: all settings at once
        **settings: of :class:`~tllib_ancon.config.predict.PredictConfig`, such as ``batch_size=64``

    Returns: the scores

    Raises:
        UserError: a setting, model, image or label that cannot be used (which, why, what to do)

    Example::

        >>> tllib_ancon.evaluate(model, "photos/", labels=labels).accuracy
    """
    requested = settings_of_call(PredictConfig, config, settings).with_paths(checkpoint=model)
    transforms = TransformRule.of_call(None, evaluation_transform)
    with devices.restoring_state(requested.threads):
        opened_model = open_model(model, requested, output=output)
        opened = open_images(images, opened_model, requested, labels=labels, transforms=transforms, loader=loader)
        predictions = _finite_predictions(opened)
        notes = [*predictions.notes]
        domain = opened.images
        logits = torch.from_numpy(predictions.logits)
        confusion = None
        scores: Metrics = {"images": len(domain), **selection.score_all(logits.softmax(1))}
        if domain.labels is not None:
            true_labels = torch.from_numpy(domain.labels)
            scores |= evaluation.summarize(logits, true_labels, domain.num_classes)
            predicted = torch.from_numpy(predictions.labels)
            confusion = evaluation.confusion_matrix(predicted, true_labels, domain.num_classes).numpy()
        elif labels is None and not isinstance(images, str | os.PathLike | None):
            text = "no accuracy, as labels in the items of a dataset are not read"
            notes.append(Note("no-labels", text, "labels", f"pass {named('labels')}, such as dataset.targets"))
            Progress(requested.quiet).notes(notes[-1:])
        if source is not None:
            scores["source_accuracy"] = _source_accuracy(opened, source, transforms, loader)
        return Evaluation(scores, domain.classes, confusion, tuple(notes))


def _finite_predictions(opened: Opened[PredictConfig]) -> Predictions:
    predictions = predict_images(opened)
    require_predictions(predictions.labels, opened.images)
    return predictions


def _source_accuracy(
    adapted: Opened[PredictConfig], source: Any, transforms: TransformRule, loader: Loader | None
) -> dict[str, float]:
    """Accuracy in % on labelled images of the source ``after`` adaptation and, of the run's source model, ``before``. A
    path is a folder or a file as for ``images``; with ``data`` in the settings it is a domain of that dataset."""
    model = adapted.model
    settings = adapted.requested
    images = source
    if isinstance(source, str | os.PathLike) and settings.data not in (None, Arrays.name):
        settings = settings.replace(target=(os.fspath(source),))
        images = None
    opened = open_images(images, model, settings, transforms=transforms, loader=loader)
    if opened.images.labels is None:
        raise BadImages(
            f"the source {opened.images.name} has no labels, and its accuracy needs them",
            "pass a folder of class folders; for arrays call evaluate with them and their labels",
        )
    accuracy = {"after": _percent_right(opened)}
    checkpoint = None if model.source.run is None else source_checkpoint(RunDirectory(model.source.run))
    if checkpoint is not None:
        source_model = model.with_weights_of(checkpoint, settings)
        accuracy["before"] = _percent_right(open_images(opened.images, source_model, settings, transforms=transforms))
    return accuracy


def _percent_right(opened: Opened[PredictConfig]) -> float:
    return 100 * float((predict_images(opened).labels == opened.images.labels).mean())


def _source_line(accuracy: Mapping[str, float]) -> str:
    if "before" in accuracy:
        return f"accuracy on the source: {accuracy['before']:.2f} % before adaptation, {accuracy['after']:.2f} % after"
    return f"accuracy on the source: {accuracy['after']:.2f} %"
