"""What a model is worth on images, before anything is adapted: accuracy, drift, and whether to adapt."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from tllib_ancon import assessing
from tllib_ancon.assessing import ERRORS, FEWEST_ANSWERS, FEWEST_IMAGES, Advice, SourceStatistics
from tllib_ancon.certification import Interval
from tllib_ancon.certifying.session import COLUMNS
from tllib_ancon.config import AssessConfig, PredictConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.loading import ImageLoader, UnlabelledImages
from tllib_ancon.data.open import as_domain
from tllib_ancon.errors import UserError, reading
from tllib_ancon.models.batch_norm import estimate_statistics, has_statistics
from tllib_ancon.models.classifier import Classifier, as_classifier, preprocessing_of, require_network
from tllib_ancon.models.foundation import is_processor, preprocessing_of_processor
from tllib_ancon.text import Shown, csv_text
from tllib_ancon.training import devices, inputs
from tllib_ancon.training.adapting import HALF, scores_under_dropout
from tllib_ancon.training.files import read_bytes, write_bytes
from tllib_ancon.training.inference import Predictions, predict_domain
from tllib_ancon.training.inputs import Transform
from tllib_ancon.training.predict import images_of
from tllib_ancon.training.run import BEST, STATISTICS
from tllib_ancon.training.teaching import answers_of, names_of

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
            each needs
        intervals: of each of these
        drift_p: p-value of "these images are like the source's hold-out"; None where nothing of it is known
        advice: ``"adapt"``, ``"do not adapt"`` or ``"cannot tell"``
        labels_needed: labels of random images after which the accuracy is known to ± 10 points or so
        labels: answers that counted
        images: N
        source: what is known of the model on its source, for another call's ``source``
    """

    accuracy: float
    interval: Interval
    estimates: Mapping[str, float]
    intervals: Mapping[str, Interval]
    drift_p: float | None
    advice: Advice
    labels_needed: int
    labels: int
    images: int
    source: SourceStatistics | None

    def json(self) -> str:
        """All but ``source``, as JSON."""
        return json.dumps({name: value for name, value in asdict(self).items() if name != "source"}, indent=2)

    def __repr__(self) -> str:
        source = f"from {self.labels:,} labels" if self.labels else "without labels"
        rows = [("accuracy", self.accuracy, self.interval, f", {source}, of {self.images:,} images")]
        rows += [(name, value, self.intervals[name], "") for name, value in self.estimates.items()]
        lines = [
            f"{name:<10} {100 * value:5.1f} %, between {100 * lower:.1f} and {100 * upper:.1f} %{more}"
            for name, value, (lower, upper), more in rows
        ]
        if self.drift_p is not None:
            lines.append(f"drift      p = {self.drift_p:.2g} that features have the means of the source's hold-out")
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
    chosen: PredictConfig = config
    with devices.using_processor(config.threads):
        own = None if model is None or isinstance(model, str | Path) else require_network(model)
        names = None
        if own is not None:
            config.refuse_beside_a_model()
            network, known = copy.deepcopy(own), None
            preprocessing = preprocessing_of(network)
        else:
            config = config if model is None else config.replace(checkpoint=str(model))
            start = inputs.starting_model(config)
            chosen = inputs.inherited(config, start)
            network, names = inputs.load_classifier(chosen, start), start.classes
            preprocessing, known = network.preprocessing, _recorded(start)
        target = images_of(config, names) if images is None else as_domain(images, labels=False, classes=names)
        if is_processor(evaluation_transform):
            preprocessing, evaluation_transform = preprocessing_of_processor(evaluation_transform), None
        transform = evaluation_transform or inputs.choose_transforms(chosen, preprocessing, target)[1].evaluation
        probe = torch.stack([transform(target.image(index % len(target))) for index in range(2)])
        classifier = as_classifier(network, head, probe).to(devices.device())
        passed = _Pass(classifier, config, transform)
        if isinstance(source, SourceStatistics):
            known = source
        elif source is not None or config.source:
            opened = inputs.open_images(config, config.source, classes=names) if source is None else source
            labelled = as_domain(opened, labels=source_labels, classes=names)
            known = _of_source(passed, inputs.with_classes(labelled, classifier.num_classes))
        target = inputs.with_classes(target, classifier.num_classes)
        order = np.random.default_rng(config.seed).permutation(len(target))
        paths = names_of(target, str(images if isinstance(images, str | Path) else config.root))
        if config.questions is not None:
            rows = ([paths[position], ""] for position in order.tolist())
            write_bytes(Path(config.questions), csv_text([COLUMNS, *rows]).encode())
        given = config.answers if answers is None else answers
        answered = None if given is None else answers_of(given, target, paths)
        found = _assessed(passed, target, known, answered, order)
    if config.json_file is not None:
        write_bytes(Path(config.json_file), (found.json() + "\n").encode())
    return found


class _Pass:
    """Passes of a network over domains, in a random order: batch-norm mixes batches that are like the whole."""

    def __init__(self, classifier: Classifier, config: AssessConfig, transform: Transform):
        self.classifier, self.config, self.transform = classifier, config, transform

    def loader(self, domain: Domain) -> ImageLoader:
        order = np.random.default_rng(self.config.seed).permutation(len(domain)).tolist()
        return ImageLoader(UnlabelledImages(domain, self.transform), self.config.batch_size, self.config.workers, order)

    def __call__(self, domain: Domain, network: nn.Module | None = None) -> Predictions:
        """In the domain's order."""
        loader = self.loader(domain)
        found = predict_domain(network or self.classifier, loader, devices.device(), len(domain))
        if not found.logits.isfinite().all():
            raise UserError("the model's logits are not finite: its weights are damaged")
        back = found.indices.argsort()
        return Predictions(*(part[back] for part in found))

    def mixed(self, domain: Domain) -> NDArray[np.int64]:
        """The classes that the network says with half of the domain's batch-norm statistics."""
        network = copy.deepcopy(self.classifier).requires_grad_(True)
        estimate_statistics(network, (batch.to(devices.device()) for _, batch in self.loader(domain)), HALF)
        return self(domain, network).logits.argmax(1).cpu().numpy()


def _assessed(
    passed: _Pass,
    target: Domain,
    known: SourceStatistics | None,
    answers: NDArray[np.int64] | None,
    order: NDArray[np.int64],
) -> Assessment:
    predictions = passed(target)
    logits, features = predictions.logits.cpu().numpy(), predictions.features.cpu().numpy()
    classes, count = logits.argmax(1), len(target)
    head = passed.classifier.head
    estimates = {} if known is None else {"atc": assessing.atc(logits, known), "doc": assessing.doc(logits, known)}
    if head is not None:
        estimates |= scores_under_dropout(predictions, head)
    if has_statistics(passed.classifier):
        estimates["agreement"] = assessing.agreement(classes, passed.mixed(target))
    if not estimates and answers is None:
        raise UserError(
            "nothing tells this model's accuracy: it has neither a head that is known nor batch-norm; pass `head`, "
            "images of its `source`, or `answers`"
        )
    intervals = {name: assessing.likely(name, value) for name, value in estimates.items()}
    best = min(estimates, key=lambda name: np.ptp(ERRORS[name]), default="")
    accuracy, interval, labels = estimates.get(best, 0.5), intervals.get(best, Interval(0, 1)), 0
    if answers is not None:
        unanswered = np.flatnonzero(answers[order] < 0)
        labels = int(unanswered[0]) if len(unanswered) else count
        if labels < FEWEST_ANSWERS:
            raise UserError(
                f"`answers` has {labels} of the images that count, in their order; {FEWEST_ANSWERS} are needed: "
                "`questions=FILE` writes the images to label, in that order"
            )
        confidences = assessing.softmax(logits).max(1)[order]
        right = (answers == classes)[order][:labels]
        accuracy, interval = assessing.labelled_accuracy(right, confidences, passed.config.delta)
    drift = assessing.drift_p(features, known) if known is not None and features.size else None
    advice = assessing.advise(estimates.get("agreement"), interval if labels else None)
    needed = assessing.labels_needed(accuracy, count, passed.config.delta)
    return Assessment(accuracy, interval, estimates, intervals, drift, advice, needed, labels, count, known)


def _recorded(start: inputs.TrainedModel) -> SourceStatistics | None:
    """What the run that trained the model kept of its source."""
    path = Path() if start.run is None else start.run / STATISTICS
    if not path.is_file() or Path(start.checkpoint).name != BEST:
        return None
    with reading(path, "statistics of a source"):
        return SourceStatistics(**json.loads(read_bytes(path)))


def _of_source(passed: _Pass, source: Domain) -> SourceStatistics:
    if source.labels is None:
        raise UserError("the images of `source` have no labels; pass `source_labels`, or a folder with one a class")
    if len(source) < FEWEST_IMAGES or len(set(source.labels.tolist())) < 2:
        raise UserError(
            f"`source` has {len(source)} images of {len(set(source.labels.tolist()))} classes; give {FEWEST_IMAGES} or "
            "more, of all classes"
        )
    predictions = passed(source)
    return SourceStatistics.of(predictions.logits.cpu(), predictions.features.cpu(), source.labels)
