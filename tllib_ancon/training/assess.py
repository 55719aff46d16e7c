"""What a model is worth on images, before anything is adapted: accuracy, drift, and whether to adapt."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from torch import nn

from tllib_ancon import assessing
from tllib_ancon.assessing import DRIFT, FEWEST_ANSWERS, FEWEST_IMAGES, Advice, SourceStatistics, share_in_words
from tllib_ancon.certification import Interval
from tllib_ancon.config import AssessConfig
from tllib_ancon.data.answers import COLUMNS
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.loading import ImageLoader, UnlabelledImages
from tllib_ancon.data.open import as_domain
from tllib_ancon.errors import UserError
from tllib_ancon.models.batch_norm import HALF, estimated_statistics, has_statistics
from tllib_ancon.models.classifier import Classifier, as_classifier
from tllib_ancon.text import Shown, csv_text
from tllib_ancon.training import devices, inputs
from tllib_ancon.training.adapting import scores_under_dropout
from tllib_ancon.training.files import write_bytes
from tllib_ancon.training.inference import Predictions, predict_domain
from tllib_ancon.training.inputs import Transform
from tllib_ancon.training.predict import opened
from tllib_ancon.training.teaching import answers_of, certifying, names_of

CAUTION = (
    "no estimate without labels can be trusted under every shift (arXiv 2201.04234); docs/assess.md has the record"
)


@dataclass(frozen=True, repr=False)
class Assessment(Shown):
    """What is known of a model's accuracy on N images; accuracies are shares in [0, 1]. ``print`` tells it in words.

    Attributes:
        accuracy: from the labels, where there are any, else the estimate without labels whose errors were the smallest
        interval: lower and upper end; from labels valid at level 1 - δ whenever one stops, else as often as measured
        estimates: those without labels, by name: ``atc``, ``doc``, ``aetta``, ``agreement``, as far as there is what
            each needs; ``intervals`` those around them
        drift_p: p-value of "these images are like the source's"; None where nothing of the source is known
        advice: ``"adapt"``, ``"do not adapt"`` or ``"cannot tell"``, by :func:`tllib_ancon.assessing.advise`
        labels_needed: labels of random images after which the accuracy is known to ± 10 points or so
        labels: answers that counted
        images: N
        source: what is known of the model on its source, for another call's ``source``
    """

    accuracy: float
    interval: Interval
    estimates: Mapping[str, float]
    drift_p: float | None
    advice: Advice
    labels_needed: int
    labels: int
    images: int
    source: SourceStatistics | None

    @property
    def intervals(self) -> dict[str, Interval]:
        return {name: assessing.likely(name, value) for name, value in self.estimates.items()}

    def __repr__(self) -> str:
        told = f", {f'from {self.labels:,} labels' if self.labels else 'without labels'}, of {self.images:,} images"
        rows = [("accuracy", self.accuracy, self.interval, told)]
        rows += [(name, value, self.intervals[name], "") for name, value in self.estimates.items()]
        lines = [f"{name:<10} {share_in_words(value, interval)}{more}" for name, value, interval, more in rows]
        if self.drift_p is not None:
            lines.append("drift      " + DRIFT.format(self.drift_p))
        unsure = f": label about {self.labels_needed:,}" if self.advice == "cannot tell" else ""
        return "\n".join([*lines, f"advice     {self.advice}{unsure}", *([] if self.labels else [CAUTION])])


def assess(
    model: nn.Module | str | Path | None = None,
    images: Any = None,
    *,
    source: Any = None,
    source_labels: ArrayLike | None = None,
    answers: ArrayLike | str | Path | None = None,
    head: str | None = None,
    evaluation_transform: Transform | None = None,
    config: AssessConfig | None = None,
    **settings: Any,
) -> Assessment:
    """Tell what a model's accuracy is on images, whether they differ from its source, and whether to adapt to them.

    Args:
        model, images, head, evaluation_transform: as for :func:`tllib_ancon.adapt`; the model stays as it is. Of a
            source model that ``pretrain`` trained, its run directory tells what ATC, DoC and the test of drift need
        source: labelled images of the model's source that it was not trained on, which tell the same of any model; or
            the ``source`` of an earlier result
        source_labels: (S,) their classes, where ``source`` does not tell them
        answers: (N,) true classes, -1 where none is known, or a CSV file of ``path,class``. Images count in a random
            order that the seed decides, up to the first without an answer: ``questions=FILE`` writes that order
        config: all settings at once
        **settings: of :class:`~tllib_ancon.config.AssessConfig`

    Raises:
        UserError: a setting, model or image that cannot be used; a source of other classes or of one; fewer than ten
            answers that count

    Example::

        >>> print(tllib_ancon.assess(model, "photos/", source="held_out/"))
    """
    config = config or AssessConfig(**{"quiet": True, **settings})
    with devices.using_processor(config.threads):
        passes, target, start = passes_of(config, model, images, head, evaluation_transform)
        classes = None if start is None else start.classes
        of_source = source if source is not None or start is None else start.statistics
        if source is None and config.source:
            source = inputs.open_images(config, config.source, classes=classes)
        if source is not None and not isinstance(source, SourceStatistics):
            labelled = as_domain(source, labels=source_labels, classes=classes)
            of_source = passes.statistics(inputs.with_classes(labelled, target.num_classes))
        names = names_of(target, str(images if isinstance(images, str | Path) else config.root))
        given = config.answers if answers is None else answers
        answered = None if given is None else answers_of(given, target, names)
        unseen = certifying((start and start.recorded) or {}, len(target))  # no label of these has taught
        unseen = np.arange(len(target)) if unseen is None else unseen
        target = target.subset(unseen)
        order = unseen[passes.order(target)]
        if config.questions is not None:
            rows = [COLUMNS, *([names[position], ""] for position in order)]
            write_bytes(Path(config.questions), csv_text(rows).encode())
        return _assessed(passes, target, of_source, None if answered is None else answered[order])


def passes_of(
    config: AssessConfig, model: Any, images: Any, head: str | None = None, transform: Transform | None = None
) -> tuple[Passes, Domain, inputs.TrainedModel | None]:
    """A copy of the model, ready to pass over domains; the images; and where the model comes from."""
    network, target, transform, start = opened(config, model, images, transform)
    probe = torch.stack([transform(target.image(index % len(target))) for index in range(2)])
    classifier = as_classifier(copy.deepcopy(network), head, probe).to(devices.device())
    return Passes(classifier, config, transform), inputs.with_classes(target, classifier.num_classes), start


@dataclass(frozen=True)
class Passes:
    """Passes of a network over domains in a random order, so that a batch's statistics are like those of all."""

    classifier: Classifier
    config: AssessConfig
    transform: Transform

    def order(self, domain: Domain) -> list[int]:
        order: list[int] = np.random.default_rng(self.config.seed).permutation(len(domain)).tolist()
        return order

    def loader(self, domain: Domain) -> ImageLoader:
        images = UnlabelledImages(domain, self.transform)
        return ImageLoader(images, self.config.batch_size, self.config.workers, self.order(domain))

    def predictions(self, domain: Domain, network: nn.Module | None = None) -> Predictions:
        """In the loader's order."""
        found = predict_domain(network or self.classifier, self.loader(domain), devices.device(), len(domain))
        if not found.logits.isfinite().all():
            raise UserError("the model's logits are not finite: its weights are damaged")
        return found

    def mixed(self, domain: Domain) -> NDArray[np.int64]:
        """The classes that the network says with half of the domain's batch-norm statistics."""
        network = copy.deepcopy(self.classifier).requires_grad_(True)
        with estimated_statistics(network, HALF):
            return self.predictions(domain, network).logits.argmax(1).cpu().numpy()

    def statistics(self, source: Domain) -> SourceStatistics:
        if source.labels is None or len(source) < FEWEST_IMAGES or len(np.unique(source.labels)) < 2:
            raise UserError(
                f"`source` is {len(source)} images; give {FEWEST_IMAGES} or more of several classes, with their labels "
                "in folders or as `source_labels`"
            )
        found = self.predictions(source)
        return SourceStatistics.of(found.logits.cpu(), found.features.cpu(), source.labels[found.indices])


def _assessed(
    passes: Passes, target: Domain, source: SourceStatistics | None, answers: NDArray[np.int64] | None
) -> Assessment:
    """``answers``, (N,) in the order of the passes, count up to the first -1."""
    predictions, classifier, delta = passes.predictions(target), passes.classifier, passes.config.delta
    logits, features = predictions.logits.cpu().numpy(), predictions.features.cpu().numpy()
    classes, count = logits.argmax(1), len(target)
    numbers = assessing.by_source(logits, features, source) | scores_under_dropout(predictions, classifier.head)
    if has_statistics(classifier):
        numbers["agreement"] = assessing.agreement(classes, passes.mixed(target))
    found, labels = assessing.without_labels(numbers), 0
    if answers is not None:
        labels = int(np.argmax(np.append(answers, -1) < 0))
        if labels < FEWEST_ANSWERS:
            raise UserError(
                f"`answers` has {labels} of the images that count, in their order; {FEWEST_ANSWERS} are needed: "
                "`questions=FILE` writes the images to label, in that order"
            )
        right = (answers == classes)[:labels]
        accuracy, interval = assessing.labelled_accuracy(right, softmax(logits, 1).max(1), delta)
    elif found:
        accuracy, interval = found["accuracy"], Interval(*found["interval"])
    else:
        raise UserError(
            "nothing tells this model's accuracy: it has neither a head that is known nor batch-norm; pass `head`, "
            "images of its `source`, or `answers`"
        )
    advice = assessing.advise(numbers.get("agreement"), interval if labels else None)
    needed, drift = assessing.labels_needed(accuracy, count, delta), numbers.get("drift_p")
    return Assessment(accuracy, interval, found.get("estimates", {}), drift, advice, needed, labels, count, source)
