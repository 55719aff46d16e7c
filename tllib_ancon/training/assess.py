"""Assess a model on images: its accuracy from labels, or indicators of it without labels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from torch import nn

from tllib_ancon.config.assess import AssessConfig
from tllib_ancon.data.answers import COLUMNS
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.loading import ImageLoader, UnlabelledImages
from tllib_ancon.data.open import as_domain
from tllib_ancon.data.transforms import mirror
from tllib_ancon.measures import indicators as assessing
from tllib_ancon.measures.disagreement import Interval
from tllib_ancon.measures.indicators import FEWEST_ANSWERS, FEWEST_IMAGES, UNRELIABLE, SourceStatistics
from tllib_ancon.models.batch_norm import HALF, estimated_statistics, has_statistics
from tllib_ancon.models.classifier import Classifier, NetworkClassifier, as_classifier
from tllib_ancon.models.copies import copy_of, recording_gradients
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.text import Shown, csv_text
from tllib_ancon.training import devices, inputs
from tllib_ancon.training.class_names import in_the_models_order
from tllib_ancon.training.evaluate import source_accuracy, source_line
from tllib_ancon.training.files import write_bytes
from tllib_ancon.training.inference import Outputs, View, predict_domain, scores_under_dropout
from tllib_ancon.training.mirroring import shifted
from tllib_ancon.training.not_finite import without_output
from tllib_ancon.training.predictor import Predictor
from tllib_ancon.training.probing import probe_of
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.resolve import Transform
from tllib_ancon.training.source import Source
from tllib_ancon.training.teaching import answers_of, certifying, names_of


@dataclass(frozen=True, repr=False)
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

    accuracy: float | None
    interval: Interval | None
    indicators: Mapping[str, Any]
    labels_needed: int
    labels: int
    images: int
    source: SourceStatistics | None
    class_prior: NDArray[np.float64]
    class_prior_interval: NDArray[np.float64] | None
    source_accuracy: Mapping[str, float] | None = None

    def __repr__(self) -> str:
        first = f"{UNRELIABLE}, {self.images:,} images"
        if self.accuracy is not None and self.interval is not None:
            lower, upper = (100 * end for end in self.interval)
            first = f"accuracy {100 * self.accuracy:.1f} %, between {lower:.1f} and {upper:.1f} %, "
            first += f"from {self.labels:,} labels of {self.images:,} images"
        lost = [] if self.source_accuracy is None else [source_line(self.source_accuracy)]
        return "\n".join([first, *assessing.in_words(self.indicators, self.labels_needed), *lost])


@recording_gradients()
def assess(
    model: nn.Module | str | Path | None = None,
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
    config = config or AssessConfig(**{"quiet": True, **settings})
    with devices.using_processor(config.threads):
        passes, target, start = passes_of(config, model, images, head, evaluation_transform)
        of_source = source if source is not None else start.statistics
        if source is None and config.source:
            source = inputs.open_images(config, config.source, classes=start.classes)
        lost = None
        if source is not None and not isinstance(source, SourceStatistics):
            labelled = _labelled(source, start.classes)
            if labelled is not None:
                lost = source_accuracy(Predictor(config, model, evaluation_transform, head=head), labelled)
            source = as_domain(source, labels=False)
            if len(source) < FEWEST_IMAGES:
                raise UserError(f"`source` has {len(source)} images. Pass {FEWEST_IMAGES} or more.")
            of_source = SourceStatistics.of(passes.predictions(source).features.cpu())
        names = names_of(target, str(images if isinstance(images, str | Path) else config.root))
        given = config.answers if answers is None else answers
        answered = None if given is None else answers_of(given, target, names)
        unseen = certifying(start.recorded, len(target))  # no label of these has taught
        unseen = np.arange(len(target)) if unseen is None else unseen
        target = target.subset(unseen)
        order = unseen[passes.order(target)]
        if config.questions is not None:
            rows = [COLUMNS, *([names[position], ""] for position in order)]
            write_bytes(Path(config.questions), csv_text(rows).encode())
        return replace(
            _assessed(passes, target, of_source, None if answered is None else answered[order]), source_accuracy=lost
        )


def _labelled(source: Any, classes: Sequence[str] | None) -> Domain | None:
    """The images of a source if they have labels: a labelled domain, or a folder of the class folders."""
    if isinstance(source, Domain):
        return source if source.labels is not None else None
    is_folder = isinstance(source, str | os.PathLike) and os.path.isdir(source)
    return as_domain(source, classes=classes) if is_folder and classes and {*classes} <= {*os.listdir(source)} else None


def passes_of(
    config: AssessConfig, model: Any, images: Any, head: str | None = None, transform: Transform | None = None
) -> tuple[Passes, Domain, Source]:
    """A copy of the model, ready to pass over domains; the images; and where the model comes from."""
    predictor = Predictor(config, model, transform)
    target = predictor.open(images)
    transform = predictor.prepare(target)[1]
    network = copy_of(predictor.network)
    classifier = as_classifier(network, head, probe_of(target, transform)).to(devices.device())
    show = Progress(config.quiet).line
    if isinstance(classifier, NetworkClassifier):
        for note in classifier.reader.notes:
            show(note)
    target = in_the_models_order(target, network, classifier.num_classes, Source(), show)
    other_view = shifted if predictor.config.no_hflip else mirror
    return Passes(classifier, config, transform, other_view), target, predictor.start


@dataclass(frozen=True)
class Passes:
    """Passes of a network over domains in a random order, so that a batch's statistics are like those of all."""

    classifier: Classifier
    config: AssessConfig
    transform: Transform
    other_view: View = mirror  # whose predictions are compared with those of the image, without batch-norm

    def order(self, domain: Domain) -> list[int]:
        return [*map(int, np.random.default_rng(self.config.seed).permutation(len(domain)))]

    def predictions(self, domain: Domain, network: nn.Module | None = None, view: View | None = None) -> Outputs:
        images = UnlabelledImages(domain, self.transform)
        loader = ImageLoader(images, self.config.batch_size, self.config.workers, self.order(domain))
        predictions = predict_domain(network or self.classifier, loader, devices.device(), len(domain), view)
        is_bad = ~predictions.logits.isfinite().all(1).cpu()
        if is_bad.any():
            raise without_output(predictions.indices.cpu()[is_bad].numpy(), domain)
        return predictions

    def mixed(self, domain: Domain) -> NDArray[np.int64]:
        network = copy_of(self.classifier).requires_grad_(True)
        with estimated_statistics(network, HALF):
            return self.predictions(domain, network).logits.argmax(1).cpu().numpy()


def _assessed(
    passes: Passes, target: Domain, source: SourceStatistics | None, answers: NDArray[np.int64] | None
) -> Assessment:
    """``answers``, (N,) in the order of the passes, count up to the first -1."""
    predictions, classifier, delta = passes.predictions(target), passes.classifier, passes.config.delta
    logits, features = predictions.logits.cpu().numpy(), predictions.features.cpu().numpy()
    classes, count = logits.argmax(1), len(target)
    found = assessing.indicators(classes, logits.shape[1], features, source)
    found |= scores_under_dropout(predictions, classifier.head)
    if has_statistics(classifier):
        found["agreement"] = assessing.agreement(classes, passes.mixed(target))
    elif not target.holds_tensors:  # without batch-norm by another view
        other = passes.predictions(target, view=passes.other_view).logits.argmax(1).cpu().numpy()
        found["agreement"] = assessing.agreement(classes, other)
    labels, accuracy, interval = 0, None, None
    prior, ends = np.bincount(classes, minlength=logits.shape[1]) / count, None
    if answers is not None:
        labels = int(np.argmax(np.append(answers, -1) < 0))
        if labels < FEWEST_ANSWERS:
            raise UserError(
                f"`answers` has {labels} of the images that count, in their order; label {FEWEST_ANSWERS} or more. "
                "Pass "
                "`questions=FILE` to write the images to label, in that order"
            )
        right = (answers == classes)[:labels]
        probabilities = softmax(logits, 1)
        accuracy, interval = assessing.labelled_accuracy(right, probabilities.max(1), delta)
        each = [
            assessing.labelled_accuracy(answers[:labels] == k, probabilities[:, k], delta) for k in range(len(prior))
        ]
        prior, ends = (np.array(values) for values in zip(*each, strict=True))
    needed = assessing.labels_needed(0.5 if accuracy is None else accuracy, count, delta)
    return Assessment(accuracy, interval, found, needed, labels, count, source, prior, ends)
