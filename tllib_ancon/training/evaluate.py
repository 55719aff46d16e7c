"""The accuracy and the label-free scores of a model on the images of a domain."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.config.settings import settings_of_call
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.labels import Labels
from tllib_ancon.data.layouts.arrays import Arrays
from tllib_ancon.data.open import as_domain
from tllib_ancon.data.readers import Loader
from tllib_ancon.data.transforms import Transform
from tllib_ancon.measures import evaluation, selection
from tllib_ancon.models.copies import recording_gradients
from tllib_ancon.models.output import Output
from tllib_ancon.opening.images import chosen_loader, open_by_settings
from tllib_ancon.opening.source import Model, open_checkpoint
from tllib_ancon.runs.directory import SOURCE, RunDirectory
from tllib_ancon.runtime import devices
from tllib_ancon.runtime.errors import UserError, named
from tllib_ancon.runtime.text import Shown
from tllib_ancon.runtime.types import Metrics
from tllib_ancon.training.confusion import Confusion, class_table, confusion_matrix
from tllib_ancon.training.not_finite import predicted_classes, require_predictions
from tllib_ancon.training.predict import Predictor
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
    """

    scores: Metrics
    classes: Sequence[str]
    confusion: Confusion | None = None

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
            yield source_line(scores["source_accuracy"])
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
    requested = settings_of_call(PredictConfig, config, settings)
    progress = Progress(requested.quiet)
    with devices.restoring_state(requested.threads):
        predictor = Predictor(requested, model, evaluation_transform, output=output, loader=loader)
        opened = predictor.open_labelled(images, labels)
        outputs = predictor.logits(opened)
        require_predictions(predicted_classes(outputs), opened)
        domain = labelled_images(predictor, opened, outputs.shape[1])
        logits = torch.from_numpy(outputs)
        confusion = None
        scores: Metrics = {"images": len(domain), **selection.score_all(logits.softmax(1))}
        if domain.labels is not None:
            confusion = confusion_matrix(predicted_classes(outputs), domain.labels, domain.num_classes)
            scores |= evaluation.summarize(logits, torch.from_numpy(domain.labels), domain.num_classes)
        elif labels is None and not isinstance(images, str | os.PathLike | None):
            progress.line(
                f"no accuracy, as labels in the items of a dataset are not read; pass {named('labels')}, such as "
                f"dataset.targets"
            )
        if source is not None:
            scores["source_accuracy"] = source_accuracy(predictor, source)
        return Evaluation(scores, domain.classes, confusion)


def labelled_images(predictor: Predictor, images: ImageSource, num_classes: int) -> ImageSource:
    """The images with their labels in the order of the model's classes."""
    source = predictor.source
    classes = source.classes_of(predictor.network, num_classes)
    labelled, notes = classes.label(images, source.recorded_folders)
    Progress(predictor.config.quiet).lines(map(str, notes))
    return labelled


def source_accuracy(predictor: Predictor, source: Any) -> dict[str, float]:
    """Accuracy in % on labelled images of the source ``after`` adaptation and, of the run's source model, ``before``. A
    path is a folder of class folders or a file of arrays; with ``data`` in the settings it is a domain of that dataset.
    Other sources are datasets of Hugging Face."""
    opened = _open_source_domain(predictor, source)
    outputs = predictor.logits(opened)
    domain = labelled_images(predictor, opened, outputs.shape[1])
    if domain.labels is None:
        raise UserError(
            f"the source {domain.name} has no labels, and its accuracy needs them",
            "pass a folder of class folders; for arrays call evaluate with them and their labels",
        )
    accuracy = {}
    source_model = _source_model_of_the_run(predictor)
    if source_model is not None:
        accuracy["before"] = _percent_right(source_model.logits(domain), domain.labels)
    accuracy["after"] = _percent_right(outputs, domain.labels)
    return accuracy


def _open_source_domain(predictor: Predictor, source: Any) -> ImageSource:
    config = predictor.config
    classes = predictor.source.classes
    if not isinstance(source, str | os.PathLike):
        return as_domain(source, classes=classes, loader=chosen_loader(config, predictor.loader))
    if config.data in (None, Arrays.name):
        return open_by_settings(config.replace(root=source), (), "test", classes, loader=predictor.loader)
    return open_by_settings(config, (os.fspath(source),), "test", classes, loader=predictor.loader)


def _source_model_of_the_run(predictor: Predictor) -> Predictor | None:
    """The source model of the run that adapted the predictor's model; None where there is no run or no such model."""
    source = predictor.source
    if source.run is None:
        return None
    stored = RunDirectory(source.run).checkpoints / SOURCE
    if stored.is_file():
        return Predictor(predictor.requested, source=replace(source, checkpoint=str(stored)), loader=predictor.loader)
    recorded = source.recorded_settings.get("checkpoint")
    if recorded is None:
        return None
    return Predictor(predictor.requested, source=replace(source, checkpoint=open_checkpoint(recorded).checkpoint))


def _percent_right(outputs: NDArray[np.float32], labels: Labels) -> float:
    return 100 * float((predicted_classes(outputs) == labels).mean())


def source_line(accuracy: Mapping[str, float]) -> str:
    if "before" in accuracy:
        return f"accuracy on the source: {accuracy['before']:.2f} % before adaptation, {accuracy['after']:.2f} % after"
    return f"accuracy on the source: {accuracy['after']:.2f} %"
