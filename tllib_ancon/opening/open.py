"""The doors: a model, and with it the images that it predicts or adapts to. Opening prints nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import Loader
from tllib_ancon.data.loading import UnlabelledImages
from tllib_ancon.data.transforms import Transform, mirror
from tllib_ancon.models.calling import called
from tllib_ancon.models.classifier import Classifier, as_classifier
from tllib_ancon.models.output import Output
from tllib_ancon.opening.classes import ClassMap
from tllib_ancon.opening.images import find_target, notes_of, prepare
from tllib_ancon.opening.source import Source, open_source
from tllib_ancon.opening.transforms import TransformRule, Transforms
from tllib_ancon.runtime.errors import named
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.types import Options

ENOUGH = 8
"""Images with which a model is tried."""

FEW = 16
"""Images of a target below which a note warns."""


@dataclass(frozen=True)
class OpenedModel:
    """A trained model.

    Attributes:
        requested: settings of the user
        source: where the model comes from
        network: a copy of the caller's module, or the network of a checkpoint, with its weights
        head: the name of its head that the user passes
        notes: what was decided
    """

    requested: AdaptConfig
    source: Source
    network: nn.Module
    head: str | None
    notes: tuple[Note, ...]


@dataclass(frozen=True)
class Opened:
    """A model and its images, before the first pass over them.

    Attributes:
        model: the opened model
        classifier: its network with its head
        images: the images, decoded and cached as the settings define, with labels in the order of the classes
        settings: the settings, with every default filled in
        transform_rule: what decides how images become tensors
        transforms: how they become tensors
        classes: the classes of the classifier
        probe: a few images as the network gets them
        notes: what was decided, of the model, the images and the settings
    """

    model: OpenedModel
    classifier: Classifier
    images: Domain
    settings: AdaptConfig
    transform_rule: TransformRule
    transforms: Transforms
    classes: ClassMap
    probe: Tensor
    notes: tuple[Note, ...]

    @property
    def requested(self) -> AdaptConfig:
        """Settings of the user."""
        return self.model.requested

    @property
    def source(self) -> Source:
        """Where the model comes from."""
        return self.model.source

    @property
    def mirrors_by_default(self) -> bool:
        """Whether training mirrors images, and the user leaves it open whether it should."""
        return self.transforms.second_view is mirror and self.requested.no_hflip is None

    def unmirrored(self) -> Opened:
        """The same, as if the user had passed ``no_hflip``."""
        settings = self.settings.replace(no_hflip=True)
        transforms = self.transform_rule.transforms_of(settings, self.classifier, self.images)
        if transforms.second_view is None:
            settings = settings.replace(views=1)
        return replace(self, settings=settings, transforms=transforms)

    def with_notes(self, notes: Iterable[Note]) -> Opened:
        """The same with further notes."""
        return replace(self, notes=(*self.notes, *notes))


def open_model(
    requested: AdaptConfig, model: Any = None, head: str | None = None, output: Output | None = None
) -> OpenedModel:
    """Open the model that a caller passes or that the settings name.

    Args:
        requested: settings of the user
        model, head, output: as for :func:`tllib_ancon.adapt`
    """
    source = open_source(requested, model, output)
    notes = [*source.notes]
    network = source.load(requested, notes)
    return OpenedModel(requested, source, network, head, tuple(notes))


def open_images(
    model: OpenedModel,
    images: Any,
    labels: Any,
    user_transforms: TransformRule,
    loader: Loader | None = None,
    recorded: Options | None = None,
) -> Opened:
    """Open the images that a caller passes or that the settings name, and try the model on a few of them.

    Args:
        model: the opened model
        images, labels, loader: as for :func:`tllib_ancon.adapt`
        user_transforms: transforms of the caller
        recorded: ``config.json`` of the run that continues; empty for a new one
    """
    requested = model.requested
    source = model.source
    target = find_target(requested, source, images, labels, user_transforms, loader)
    transform_rule = user_transforms.completed_by(model.network, requested)
    prepared = prepare(requested, source, model.network, target, transform_rule, recorded or {})
    probe: Tensor = probe_of(prepared.domain, prepared.transforms.evaluation)
    classifier = _tried(model, probe)
    classes = source.classes_of(model.network, classifier.num_classes)
    labelled, notes_of_classes = classes.label(prepared.domain, source.recorded_folders)
    notes = [*model.notes, *notes_of(target), *prepared.notes, *notes_of_classes]
    settings = prepared.config
    if _head_learns(settings, requested, classifier):
        text = f"the head has all parameters of the model; it learns ({named('adapted', 'all')})"
        notes.append(Note("head-learns", text, "adapted"))
        settings = settings.replace(adapted="all")
    notes += _warnings(labelled, settings, prepared.transforms)
    transforms = prepared.transforms
    return Opened(model, classifier, labelled, settings, transform_rule, transforms, classes, probe, tuple(notes))


def _tried(model: OpenedModel, probe: Tensor) -> Classifier:
    """The network as a classifier, which was called on a few images."""
    source = model.source
    if not source.is_whole:
        called(model.network, probe)
    return as_classifier(
        model.network,
        model.head,
        probe,
        reader=source.reader,
        num_classes=source.num_classes,
        original=source.callers_module,
    )


def probe_of(images: Domain, transform: Transform) -> Any:
    """A few images from the whole target as a network gets them."""
    positions = [number * len(images) // ENOUGH for number in range(ENOUGH)]
    unlabelled = UnlabelledImages(images, transform)
    _, batch = unlabelled.batch(positions)
    return unlabelled.finish(batch, torch.device("cpu"))


def _head_learns(settings: AdaptConfig, requested: AdaptConfig, model: Classifier) -> bool:
    """Whether a model learns as a whole by default, because its head has all of its parameters."""
    if requested.adapted is not None or settings.adapted != "all-but-head" or model.head is None:
        return False
    in_head = {*model.head.parameters()}
    return all(parameter in in_head for parameter in model.parameters())


def _warnings(target: Domain, settings: AdaptConfig, transforms: Transforms) -> list[Note]:
    """Notes on a target that is hard to adapt to: without augmentation, or with few images."""
    notes = []
    is_augmented = transforms.augment is not None or not isinstance(transforms.train, nn.Identity)
    if methods.method_class(settings.method).makes_labels and target.is_raw and not is_augmented:
        text = "no augmentation is used, and pseudo-labels need one"
        action = f"pass {named('augment')}, a function of a batch"
        notes.append(Note("no-augmentation", text, "augment", action, "warning"))
    if len(target) < FEW:
        text = f"only {len(target)} of at least {FEW} images: adapting may reduce accuracy"
        notes.append(Note("few-images", text, action="add images", level="warning"))
    return notes
