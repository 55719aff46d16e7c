"""A model and images, opened as ``adapt`` would open them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import nn

from tllib_ancon.config.check import CheckConfig
from tllib_ancon.data.batches import Batch, to_device
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import Loader
from tllib_ancon.models.classifier import Classifier, as_classifier
from tllib_ancon.models.output import Output
from tllib_ancon.opening.classes import ClassMap
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.notes import Note
from tllib_ancon.training import devices, inputs
from tllib_ancon.training.first_pass import FirstPass, first_pass, sample_of
from tllib_ancon.training.image_transforms import TransformRule, Transforms
from tllib_ancon.training.inputs import PreparedImages
from tllib_ancon.training.plan import head_learns
from tllib_ancon.training.probing import probe_of
from tllib_ancon.training.source import Source, open_source

DECODED = 32
"""Images at most of the sample whose pixels are looked at."""


@dataclass(frozen=True)
class Case:
    """A model and images as ``adapt`` would use them.

    Attributes:
        prepared: settings with every default filled in, and how images become tensors
        requested: settings of the user
        source: where the model comes from
        network: copy of the model
        classifier: the same copy with its head
        probe: a few images as the network gets them
        target: all images
        labelled: whether the images have labels
        classes: classes of the classifier
        class_notes: what was decided about labels
        user_transforms: transforms or processor of the user
        predicted: the model's predictions on :attr:`sample`
    """

    prepared: PreparedImages[CheckConfig]
    requested: CheckConfig
    source: Source
    network: nn.Module
    classifier: Classifier
    probe: Batch
    target: Domain
    labelled: bool
    classes: ClassMap
    class_notes: list[Note]
    user_transforms: TransformRule
    predicted: FirstPass

    @property
    def config(self) -> CheckConfig:
        """Settings with every default filled in."""
        return self.prepared.config

    @property
    def transforms(self) -> Transforms:
        """Transforms for training and evaluation."""
        return self.prepared.transforms

    @cached_property
    def sample(self) -> Domain:
        """The images that the model predicts."""
        return sample_of(self.target, self.config.seed)

    @cached_property
    def decoded(self) -> list[Any]:
        """Some images of the sample, before their transform."""
        return [self.sample.image(index) for index in range(min(DECODED, len(self.sample)))]

    @property
    def class_names(self) -> list[str]:
        """Names of the model's classes, else of the images', else numbers."""
        if not self.classes.are_named and len(self.target.classes) == self.classes.num_classes:
            return list(self.target.classes)
        return self.classes.distinct_names


def open_case(
    requested: CheckConfig,
    model: Any,
    images: Any,
    head: str | None,
    user_transforms: TransformRule,
    loader: Loader | None = None,
    output: Output | None = None,
) -> Case:
    """Open a model and images as ``adapt`` does, and find the model's head."""
    source = open_source(requested, model, output)
    domain = inputs.open_target(requested, source, images, None, user_transforms, loader)
    network = source.load(requested)
    # The lines of check replace the notes.
    prepared = inputs.prepare(requested, source, network, domain, user_transforms.completed_by(network, requested))
    config = prepared.config
    network.to(devices.device())
    probe = to_device(probe_of(prepared.domain, prepared.transforms.evaluation), devices.device())
    classifier = as_classifier(network, head, probe, reader=source.reader, num_classes=source.num_classes)
    class_notes: list[Note] = []
    ordered = domain
    if head_learns(config, requested, classifier):
        prepared = replace(prepared, config=config.replace(adapted="all"))
    class_map = source.classes_of(network, classifier.num_classes)
    try:
        ordered, class_notes = class_map.label(domain, source.recorded_folders)
    except UserError as error:  # check shows it beside the other facts
        class_notes = [Note("other-classes", error.what, error.setting, error.action, "warning")]
    predicted = first_pass(config, classifier, prepared.domain, prepared.transforms.evaluation)
    mirrors = predicted.mirrors
    if mirrors is not None and mirrors.changes_class and prepared.mirrors_by_default(requested):
        prepared = prepared.unmirrored(classifier)
    return Case(
        prepared=prepared,
        requested=requested,
        source=source,
        network=network,
        classifier=classifier,
        probe=probe,
        target=replace(prepared.domain.without_labels(), classes=ordered.classes),
        labelled=ordered.labels is not None,
        classes=class_map,
        class_notes=class_notes,
        user_transforms=user_transforms,
        predicted=predicted,
    )
