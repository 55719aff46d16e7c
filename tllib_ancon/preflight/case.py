"""A model and images, opened as ``adapt`` would open them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import nn

from tllib_ancon.config.check import CheckConfig
from tllib_ancon.data.batches import Batch, are_images, to_device
from tllib_ancon.data.domain import Domain, numbered
from tllib_ancon.data.images import spread
from tllib_ancon.data.pixels import PixelValues
from tllib_ancon.data.transforms import mirror
from tllib_ancon.models.classifier import Classifier, as_classifier
from tllib_ancon.models.outputs import OtherOutput, called
from tllib_ancon.models.preprocessing import channels_of
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.training import devices, inputs
from tllib_ancon.training.facts import facts_of
from tllib_ancon.training.image_transforms import (
    Transforms,
    TransformSource,
    declared_preprocessing,
    preprocessing_by,
    transform_source_of,
    transforms_of,
)
from tllib_ancon.training.mirroring import MirrorDisagreement, mirror_disagreement, unmirrored
from tllib_ancon.training.model_classes import ModelClasses, in_the_models_order
from tllib_ancon.training.plan import head_learns
from tllib_ancon.training.probing import probe_of
from tllib_ancon.training.resolve import resolve
from tllib_ancon.training.source import Source, open_source

SAMPLE = 128
"""Images at most that the model predicts."""

DECODED = 32
"""Images at most of the sample whose pixels are looked at."""

ASSUMED_NORMALISATION = {"norm_mean": 0.5, "norm_std": 0.25}
"""Mean and standard deviation of a channel for a network whose normalisation is unknown."""


@dataclass(frozen=True)
class Case:
    """A model and images as ``adapt`` would use them.

    Attributes:
        config: settings with every default filled in
        requested: settings of the user
        source: where the model comes from
        network: copy of the model
        classifier: the same copy with its head; None for a model without logits (B, K)
        output_error: why there is no classifier
        probe: a few images as the network gets them
        output: what the network returns for ``probe``
        target: all images
        labelled: whether the images have labels
        folder_lines: what is assumed about class folders
        transforms: transforms for training and evaluation
        user_transforms: transforms or processor of the user
        assumed_normalisation: settings of the normalisation that nothing defines, and that have an assumed value
        mirrors: how often a mirror changes the predicted class; None if the inputs are no images
    """

    config: CheckConfig
    requested: CheckConfig
    source: Source
    network: nn.Module
    classifier: Classifier | None
    output_error: str
    probe: Batch
    output: Any
    target: Domain
    labelled: bool
    folder_lines: list[str]
    transforms: Transforms
    user_transforms: TransformSource
    assumed_normalisation: list[str]
    mirrors: MirrorDisagreement | None = None

    @cached_property
    def sample(self) -> Domain:
        """Some of the target's images, spread evenly."""
        return self.target.subset(spread(len(self.target), SAMPLE))

    @cached_property
    def decoded(self) -> list[Any]:
        """Some images of the sample, before their transform."""
        return [self.sample.image(index) for index in range(min(DECODED, len(self.sample)))]

    @cached_property
    def pixel_values(self) -> PixelValues:
        """What the files of some images hold, before they are decoded."""
        return self.target.pixel_values()

    @cached_property
    def classes(self) -> ModelClasses | None:
        """The classes of the classifier."""
        if self.classifier is None:
            return None
        return ModelClasses.of(self.network, self.classifier.num_classes, self.source)

    @property
    def class_names(self) -> list[str]:
        """Names of the model's classes, else of the images', else numbers."""
        if self.classes is None:
            return []
        names = self.classes.usable_names or list(self.target.classes)
        if len(names) == self.classes.num_classes:
            return names
        return numbered(self.classes.num_classes)


def open_case(
    requested: CheckConfig, model: Any, images: Any, head: str | None, user_transforms: TransformSource
) -> Case:
    """Open a model and images as ``adapt`` does, and find the model's head."""
    source = open_source(requested, model)
    domain = inputs.open_images(requested, images, None, source.classes)
    network = source.load(requested)
    transform_source = transform_source_of(network, user_transforms)
    assumed = _undefined_normalisation(requested, source, domain, transform_source)
    assuming = _assuming(requested, network, assumed)
    # The lines of check replace the notes.
    config, _ = resolve(assuming, facts_of(assuming, source, network, domain, transform_source))
    transforms = transforms_of(config, network, domain, transform_source)
    target = inputs.with_cache(config, domain.without_labels(), transforms)
    network.to(devices.device())
    probe = to_device(probe_of(target, transforms.evaluation), devices.device())
    output = called(network, probe)
    classifier, output_error = _classifier_of(network, head, probe)
    if classifier is not None and head_learns(config, requested, classifier):
        config = config.replace(adapted="all")
    case = Case(
        config=config,
        requested=requested,
        source=source,
        network=network,
        classifier=classifier,
        output_error=output_error,
        probe=probe,
        output=output,
        target=target,
        labelled=domain.labels is not None,
        folder_lines=[],
        transforms=transforms,
        user_transforms=user_transforms,
        assumed_normalisation=assumed,
    )
    if classifier is None:
        return case
    case = _with_classes(case, domain, classifier.num_classes)
    return _with_mirrors_compared(case, classifier, transform_source)


def _undefined_normalisation(
    config: CheckConfig, source: Source, images: Domain, transform_source: TransformSource
) -> list[str]:
    """Settings of the normalisation that neither the user, the run of the model nor the network defines."""
    if isinstance(transform_source, Transforms) or images.holds_tensors:
        return []
    settings = {}
    for name in ASSUMED_NORMALISATION:
        settings[name] = getattr(config, name) or source.recorded_settings.get(name)
    if preprocessing_by(settings, declared_preprocessing(transform_source)) is not None:
        return []
    return [name for name, value in settings.items() if value is None]


def _assuming(config: CheckConfig, network: nn.Module, names: list[str]) -> CheckConfig:
    """The settings, with assumed values of these settings of the normalisation."""
    channels = 3
    if config.bands:
        channels = len(config.bands)
    elif channels_of(network) == 1:
        channels = 1
    return config.replace(**{name: (ASSUMED_NORMALISATION[name],) * channels for name in names})


def _classifier_of(network: nn.Module, head: str | None, probe: Batch) -> tuple[Classifier | None, str]:
    """The network with its head, or why its output is not logits (B, K)."""
    try:
        return as_classifier(network, head, probe), ""
    except OtherOutput as error:
        return None, str(error)


def _with_classes(case: Case, images: Domain, num_classes: int) -> Case:
    """The case with labels and class names in the order of the model's, as far as they fit."""
    lines: list[str] = []
    try:
        ordered = in_the_models_order(images, case.network, num_classes, case.source, lines.append)
    except UserError:  # the fact about classes describes the contradiction
        ordered = images
    return replace(
        case,
        labelled=ordered.labels is not None,
        target=replace(case.target, classes=ordered.classes),
        folder_lines=lines,
    )


def _with_mirrors_compared(case: Case, classifier: Classifier, transform_source: TransformSource) -> Case:
    """The case with predictions for images and their mirrors compared, and without mirrors where ``adapt`` leaves them
    out."""
    if not are_images(case.probe):
        return case
    disagreement = mirror_disagreement(case.config, classifier, case.target, case.transforms.evaluation)
    compared = replace(case, mirrors=disagreement)
    mirrors_by_default = case.transforms.second_view is mirror and case.requested.no_hflip is None
    if not (mirrors_by_default and disagreement.changes_class):
        return compared
    unmirrored_config, transforms = unmirrored(case.config, classifier, case.target, transform_source)
    return replace(compared, config=unmirrored_config, transforms=transforms)
