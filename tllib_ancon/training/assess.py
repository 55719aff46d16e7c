"""Assess a model on images: its accuracy from labels, or indicators of it without labels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import nn

from tllib_ancon.config.assess import AssessConfig
from tllib_ancon.config.settings import settings_of_call
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.labels import Labels
from tllib_ancon.data.loading import ImageLoader, UnlabelledImages
from tllib_ancon.data.open import as_domain
from tllib_ancon.data.transforms import Transform, View, mirror
from tllib_ancon.measures import indicators
from tllib_ancon.measures.disagreement import Floats, Interval
from tllib_ancon.measures.indicators import FEWEST_ANSWERS, FEWEST_IMAGES, UNRELIABLE, SourceStatistics
from tllib_ancon.models.batch_norm import HALF, estimated_statistics, has_statistics
from tllib_ancon.models.classifier import Classifier, as_classifier
from tllib_ancon.models.copies import copy_of, recording_gradients
from tllib_ancon.runtime.errors import BadSetting, named
from tllib_ancon.runtime.text import Shown, counted
from tllib_ancon.runtime.types import Metrics, Record
from tllib_ancon.training import devices, inputs
from tllib_ancon.training.epoch_scores import scores_under_dropout
from tllib_ancon.training.evaluate import source_accuracy, source_line
from tllib_ancon.training.inference import Outputs, predict_domain
from tllib_ancon.training.mirroring import shifted
from tllib_ancon.training.model_classes import in_the_models_order
from tllib_ancon.training.not_finite import without_output
from tllib_ancon.training.predict import Predictor
from tllib_ancon.training.probing import probe_of
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.source import Model
from tllib_ancon.training.teaching import certifying_positions, image_names, labels_of_answers, write_questions


@dataclass(frozen=True, repr=False, kw_only=True)
class Assessment(Shown):
    """Indicators of a model's accuracy on N images, and its accuracy if some have labels; ``print`` shows a few lines.

    Attributes:
        accuracy: estimate from the labels, a fraction in [0, 1]; None without labels
        interval: lower and upper end, valid at level 1 - δ at any number of labels; None without labels
        indicators: ``agreement``, ``aetta``, ``class_frequencies`` of the K predicted classes, and ``drift_p``, the
            p-value that features have the means of the source's hold-out
        labels_needed: labels of random images after which the accuracy is known to about ± 5 points
        labels: answers that counted
        images: N
        source: statistics of the source's features, for another call's ``source``
        class_prior: (K,) estimated frequency of each class. Without labels: its fraction of the predicted classes
        class_prior_interval: (K, 2), lower and upper end for each class, valid as ``interval``; None without labels
        source_accuracy: accuracy in % on the source ``after`` adaptation, and ``before`` if the model is a run's; None
            unless ``source`` has labels
    """

    accuracy: float | None = None
    interval: Interval | None = None
    indicators: Metrics
    labels_needed: int
    labels: int = 0
    images: int
    source: SourceStatistics | None
    class_prior: Floats
    class_prior_interval: Floats | None = None
    source_accuracy: Mapping[str, float] | None = None

    def __repr__(self) -> str:
        lines = [self._first_line, *indicators.in_words(self.indicators, self.labels_needed)]
        if self.source_accuracy is not None:
            lines.append(source_line(self.source_accuracy))
        return "\n".join(lines)

    @property
    def _first_line(self) -> str:
        if self.accuracy is None or self.interval is None:
            return f"{UNRELIABLE}, {counted(self.images, 'image')}"
        lower, upper = self.interval
        return (
            f"accuracy {100 * self.accuracy:.1f} %, between {100 * lower:.1f} and {100 * upper:.1f} %, from "
            f"{self.labels:,} labels of {self.images:,} images"
        )


@recording_gradients()
def assess(
    model: Model | None = None,
    images: Any = None,
    *,
    source: Any = None,
    answers: ArrayLike | str | Path | None = None,
    head: str | None = None,
    evaluation_transform: Transform | None = None,
    config: AssessConfig | None = None,
    **settings: Any,
) -> Assessment:
    """Estimate a model's accuracy on images from a few labels, or compute indicators of it without labels.

    Args:
        model, images, head, evaluation_transform: as for :func:`tllib_ancon.adapt`; the model is unchanged. The run
            directory of ``pretrain`` holds the source's statistics for the test of drift
        source: images of the model's source that it was not trained on, for the test of drift; or the ``source`` of an
            earlier result
        answers: (N,) true classes, -1 where none is known, or a CSV file of ``path,class``. Images count in a random
            order that the seed decides, up to the first without an answer: ``questions=FILE`` writes that order
        config: all settings at once
        **settings: of :class:`~tllib_ancon.config.assess.AssessConfig`

    Raises:
        UserError: a setting, model or image that cannot be used; fewer than ten images of the source; fewer than ten
            answers that count

    Example::

        >>> print(tllib_ancon.assess(model, "photos/", source="held_out/"))
    """
    requested = settings_of_call(AssessConfig, config, settings)
    with devices.restoring_state(requested.threads):
        passes, all_images, predictor = _passes_of(requested, model, images, head, evaluation_transform)
        statistics, accuracy_on_source = _assessed_source(passes, predictor, source)
        root = str(requested.with_paths(root=images).root)
        positions = certifying_positions(predictor.source.recorded_settings, len(all_images))
        order = positions[passes.order(len(positions))]
        labels = None
        if answers is None:
            answers = requested.answers
        if answers is not None:
            labels = labels_of_answers(answers, all_images, root)[order]
        if requested.questions is not None:
            names = image_names(all_images, root)
            write_questions(Path(requested.questions), [names[position] for position in order])
        return replace(
            _assessed(passes, all_images.subset(positions), statistics, labels), source_accuracy=accuracy_on_source
        )


def _assessed_source(
    passes: _ShuffledPasses, predictor: Predictor, source: Any
) -> tuple[SourceStatistics | None, Mapping[str, float] | None]:
    """Statistics of the source's features, and the accuracy on the source where its images have labels."""
    if isinstance(source, SourceStatistics):
        return source, None
    if source is None and not passes.config.source:
        return predictor.source.statistics, None
    classes = predictor.source.classes
    opened = source
    if source is None:
        opened = inputs.open_by_settings(passes.config, passes.config.source, classes=classes)
    images = as_domain(opened, labels=False)
    if len(images) < FEWEST_IMAGES:
        raise BadSetting(f"{named('source')} has {len(images)} images. Pass {FEWEST_IMAGES} or more.", setting="source")
    statistics = SourceStatistics.of(passes.predictions(images).features.cpu())
    if isinstance(opened, Domain) and opened.labels is not None:
        return statistics, source_accuracy(predictor, opened)
    if classes is not None and _holds_class_folders(opened, classes):
        return statistics, source_accuracy(predictor, as_domain(opened, classes=classes))
    return statistics, None


def _holds_class_folders(source: Any, classes: Sequence[str]) -> bool:
    is_folder = isinstance(source, str | os.PathLike) and os.path.isdir(source)
    return is_folder and set(classes) <= set(os.listdir(source))


def _passes_of(
    config: AssessConfig, model: Any, images: Any, head: str | None, transform: Transform | None
) -> tuple[_ShuffledPasses, Domain, Predictor]:
    """A copy of the model, ready to pass over domains; the images; and the predictor that opened both."""
    predictor = Predictor(config, model, transform, head=head)
    opened = predictor.open(images)
    prepared, evaluation_transform = predictor.prepare(opened)
    network = copy_of(predictor.network).float()
    classifier = as_classifier(network, head, probe_of(prepared, evaluation_transform)).to(devices.device())
    progress = Progress(config.quiet)
    progress.lines(classifier.reader.notes)
    target = in_the_models_order(opened, network, classifier.num_classes, predictor.source, progress.line)
    second_view = shifted if predictor.config.no_hflip else mirror
    return _ShuffledPasses(classifier, config, evaluation_transform, second_view), target, predictor


@dataclass(frozen=True)
class _ShuffledPasses:
    """Passes of a network over domains in a random order, so that a batch's statistics are like those of all."""

    classifier: Classifier
    config: AssessConfig
    transform: Transform
    second_view: View  # whose predictions are compared with those of the image, without batch-norm

    def order(self, count: int) -> list[int]:
        order: list[int] = np.random.default_rng(self.config.seed).permutation(count).tolist()
        return order

    def predictions(self, domain: Domain, network: nn.Module | None = None, view: View | None = None) -> Outputs:
        images = UnlabelledImages(domain, self.transform)
        loader = ImageLoader(images, self.config.batch_size, self.config.workers, self.order(len(domain)))
        model = self.classifier if network is None else network
        outputs = predict_domain(model, loader, devices.device(), len(domain), len(domain), view)
        is_finite = outputs.logits.isfinite().all(1).cpu()
        if not is_finite.all():
            raise without_output(outputs.indices.cpu()[~is_finite].numpy(), domain)
        return outputs

    def mixed(self, domain: Domain) -> Labels:
        """The classes that the model predicts with half of the images' batch-norm statistics."""
        network = copy_of(self.classifier).requires_grad_(True)
        with estimated_statistics(network, HALF):
            return _classes(self.predictions(domain, network))


def _assessed(
    passes: _ShuffledPasses, target: Domain, source: SourceStatistics | None, answers: Labels | None
) -> Assessment:
    """``answers``, (N,) in the order of the passes, count up to the first -1."""
    outputs = passes.predictions(target)
    classes = _classes(outputs)
    values = indicators.indicators(classes, outputs.logits.shape[1], outputs.features.cpu().numpy(), source)
    values |= scores_under_dropout(outputs, passes.classifier.head)
    if has_statistics(passes.classifier):
        values["agreement"] = indicators.agreement(classes, passes.mixed(target))
    elif not target.holds_tensors:
        second_outputs = passes.predictions(target, view=passes.second_view)
        values["agreement"] = indicators.agreement(classes, _classes(second_outputs))
    if answers is None:
        estimates: Record = {"class_prior": np.array(values["class_frequencies"])}
    else:
        count = int(np.argmax(np.append(answers, -1) < 0))
        if count < FEWEST_ANSWERS:
            raise BadSetting(
                f"{named('answers')} has {count} of the images that count, in their order",
                f"label {FEWEST_ANSWERS} or more. Pass "
                f"{named('questions', 'FILE')} to write the images to label, in that order",
                setting="answers",
            )
        estimates = _estimates_from_labels(answers[:count], outputs, passes.config.delta)
    accuracy = estimates.get("accuracy", 0.5)
    return Assessment(
        indicators=values,
        labels_needed=indicators.labels_to_estimate_accuracy(accuracy, len(target), passes.config.delta),
        images=len(target),
        source=source,
        **estimates,
    )


def _classes(outputs: Outputs) -> Labels:
    classes: Labels = outputs.logits.argmax(1).cpu().numpy()
    return classes


def _estimates_from_labels(labels: Labels, outputs: Outputs, delta: float) -> Record:
    """Of an :class:`Assessment` the accuracy, and the class prior as the accuracy of "every image has this class"."""
    probabilities = outputs.logits.cpu().softmax(1).numpy()
    is_right = labels == _classes(outputs)[: len(labels)]
    accuracy, interval = indicators.labelled_accuracy(is_right, probabilities.max(1), delta)
    class_prior = []
    class_prior_interval = []
    for label, column in enumerate(probabilities.T):
        frequency, ends = indicators.labelled_accuracy(labels == label, column, delta)
        class_prior.append(frequency)
        class_prior_interval.append(ends)
    return {
        "accuracy": accuracy,
        "interval": interval,
        "labels": len(labels),
        "class_prior": np.array(class_prior),
        "class_prior_interval": np.array(class_prior_interval),
    }
