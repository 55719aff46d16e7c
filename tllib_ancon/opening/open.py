"""The doors: a model, and with it the images that it predicts or adapts to. Opening prints nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from torch import Tensor, nn

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.data.image_files import CHANNELS
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.loading import UnlabelledImages
from tllib_ancon.data.readers import Loader
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.models.classifier import Classifier, as_classifier
from tllib_ancon.models.copies import copy_of, unwrapped
from tllib_ancon.models.output import Output
from tllib_ancon.models.references import ModelRef, refer
from tllib_ancon.models.references.zoo import IMAGENET
from tllib_ancon.opening.classes import ClassMap
from tllib_ancon.opening.defaults import Facts, network_settings, resolve
from tllib_ancon.opening.images import open_by_settings, with_cache
from tllib_ancon.opening.source import open_source
from tllib_ancon.opening.transforms import (
    Augment,
    Transforms,
    preprocessing_for,
    refuse_unread_settings,
    transforms_of,
)
from tllib_ancon.runtime.errors import BadSetting, named
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.types import Options

Config = TypeVar("Config", bound=AdaptConfig | PredictConfig)
Config_co = TypeVar("Config_co", bound=AdaptConfig | PredictConfig, covariant=True)

FEW = 16
"""Images of a target below which a note warns."""


@dataclass(frozen=True)
class OpenedModel:
    """A trained model.

    Attributes:
        source: where the model comes from
        network: to adapt it a copy of the caller's module, to predict the module itself; else the network of a
            checkpoint, with its weights
        head: the name of its head that the user passes
        notes: what was decided
    """

    source: ModelRef
    network: nn.Module
    head: str | None
    notes: tuple[Note, ...]

    def copied(self) -> OpenedModel:
        """The same, with a copy of the caller's module in its place."""
        if self.source.callers_module is None:
            return self
        return replace(self, network=copy_of(self.network))

    def with_weights_of(self, checkpoint: str, settings: AdaptConfig | PredictConfig) -> OpenedModel:
        """Another model of the same network, such as the one that this model's run started from."""
        reference = refer(self.source.module, checkpoint)
        network = reference.network(network_settings(settings, self.source))
        return replace(self, source=replace(self.source, checkpoint=reference.checkpoint), network=network, notes=())

    def as_classifier(self, probe: Tensor, finetune: bool = True) -> Classifier:
        """The network as a classifier, which was called on a few images. With ``finetune`` it learns at a tenth of the
        rate of its head."""
        original = self.source.callers_module
        if original is not None and unwrapped(original) is self.network:
            original = None
        return as_classifier(
            self.network,
            probe,
            self.head or self.source.network_record.get("head"),
            finetune,
            reader=self.source.reader,
            num_classes=self.source.num_classes,
            original=original,
        )


@dataclass(frozen=True)
class Opened(Generic[Config_co]):
    """A model and its images, before the first pass over them.

    Attributes:
        requested: settings of the user
        settings: the settings, with every default filled in
        layers: setting -> the layer of :data:`~tllib_ancon.opening.defaults.LADDER` that decided it
        source: where the model comes from
        model: the opened model
        classifier: its network with its head
        images: the images, decoded and cached as the settings define, with labels in the order of the classes
        transforms: how they become tensors
        classes: the classes of the classifier
        probe: a few images as the network gets them
        notes: what was decided, of the model, the images and the settings
    """

    requested: Config_co
    settings: Config_co
    layers: Mapping[str, str]
    model: OpenedModel
    classifier: Classifier
    images: ImageSource
    transforms: Transforms
    classes: ClassMap
    probe: Tensor
    notes: tuple[Note, ...] = ()

    @property
    def source(self) -> ModelRef:
        """Where the model comes from."""
        return self.model.source

    def with_notes(self, notes: Iterable[Note]) -> Opened[Config_co]:
        """The same with further notes."""
        return replace(self, notes=(*self.notes, *notes))

    def augmented_by(self, augment: Augment | None) -> Opened[Config_co]:
        """The same with an augmentation of training batches by the caller. A note where pseudo-labels have none."""
        settings = self.settings
        if augment is not None:
            return replace(self, transforms=replace(self.transforms, augment=augment))
        is_augmented = not isinstance(self.transforms.train, nn.Identity)
        if is_augmented or not isinstance(settings, AdaptConfig):
            return self
        if not self.images.is_raw or not methods.method_class(settings.method).makes_labels:
            return self
        text = "no augmentation is used, and pseudo-labels need one"
        action = f"pass {named('augment')}, a function of a batch"
        return self.with_notes([Note("no-augmentation", text, "augment", action, "warning")])


def open_model(
    model: Any, settings: AdaptConfig | PredictConfig, *, head: str | None = None, output: Output | None = None
) -> OpenedModel:
    """Open the model that a caller passes or that the settings name.

    Args:
        model, head, output: as for :func:`tllib_ancon.adapt`
        settings: those of the user. To predict, the caller's module is not copied
    """
    source = open_source(settings, model, output)
    if source.callers_module is not None and isinstance(settings, PredictConfig):
        return OpenedModel(source, unwrapped(source.callers_module), head, source.notes)
    network = source.network(network_settings(settings, source))
    return OpenedModel(source, network, head, source.notes)


def open_images(
    images: Any,
    model: OpenedModel,
    settings: Config,
    *,
    labels: Any = None,
    preprocessing: Preprocessing | None = None,
    loader: Loader | None = None,
    recorded: Options = MappingProxyType({}),
    dataset_class: type[UnlabelledImages] = UnlabelledImages,
) -> Opened[Config]:
    """Open the images that a caller passes or that the settings name, and try the model on a few of them.

    Args:
        images, loader: as for :func:`tllib_ancon.adapt`
        model: the opened model
        settings: those of the user
        preprocessing: by the caller's transforms. Default: that of the network and the settings
        labels: as for :func:`tllib_ancon.adapt`; False if none are read
        recorded: ``config.json`` of the run that continues; empty for a new one
        dataset_class: what reads the images
    """
    target = open_by_settings(settings, settings.target, images, labels, model.source.classes, loader)
    _require_the_loader_of_the_run(model.source, target)
    refuse_unread_settings(settings, target, preprocessing)
    declared = preprocessing or preprocessing_for(model.network, settings)
    filled, layers = resolve(settings, Facts(model.source, model.network, target, declared, recorded))
    prepared = transforms_of(filled, target, declared)
    notes = [*model.notes, *target.notes()]
    cached = with_cache(filled, target, prepared, notes)
    probe = dataset_class(cached, prepared.evaluation).probe()
    classifier = model.as_classifier(probe, not filled.scratch)
    if isinstance(settings, PredictConfig):
        classifier.release()  # predictions need no features, and the caller's module keeps no hook
    classes = ClassMap(classifier.num_classes, model.source.class_names(model.network, classifier.num_classes))
    cached, notes_on_labels = classes.label(cached, model.source.recorded_folders)
    opened: Opened[Any] = Opened(
        settings,
        filled,
        layers,
        model,
        classifier,
        cached,
        prepared,
        classes,
        probe,
        (*notes, *notes_on_labels),
    )
    opened = opened.with_notes(_notes_on_what_is_assumed(opened))
    if target.is_raw and preprocessing is None:
        opened = opened.with_notes(_notes_on_tensors(probe))
    if isinstance(settings, AdaptConfig):
        return _ready_to_adapt(opened)
    return opened


def _require_the_loader_of_the_run(source: ModelRef, target: ImageSource) -> None:
    recorded = source.recorded_inputs.get("loader")
    if recorded and target.paths is not None and not target.reader.loader:
        raise BadSetting(
            f"the model's run read its images by the function {recorded}, which no run calls by itself",
            f"pass it as {named('loader')}",
            setting="loader",
        )


def _notes_on_what_is_assumed(opened: Opened[Any]) -> tuple[Note, ...]:
    """A note on the network and the size of images that nothing records of a file of weights."""
    source = opened.source
    if source.is_whole or source.recorded_settings or source.checkpoint == IMAGENET:
        return ()
    names = [name for name in ("arch", "image_size") if opened.layers.get(name, "user") != "user"]
    if not names:
        return ()
    assumed = ", ".join(f"{name} {getattr(opened.settings, name)}" for name in names)
    return (Note("assumed", f"{source.describe()} lies in no run directory; assumed: {assumed}"),)


def _notes_on_tensors(probe: Tensor) -> tuple[Note, ...]:
    """A note where tensors are images (1 or 3, H, W) without a negative value."""
    if probe.ndim != 4 or probe.shape[1] not in CHANNELS or probe.min() < 0:
        return ()
    least, most = map(float, probe.aminmax())
    text = f"the images are tensors with values from {least:.3g} to {most:.3g}, which the model gets unchanged"
    action = "if it was trained on normalised images, normalise them, or pass them as bytes"
    return (Note("unchanged-tensors", text, action=action, level="warning"),)


def _ready_to_adapt(opened: Opened[AdaptConfig]) -> Opened[Any]:
    """The same with what an adaptation decides by the model and the images together."""
    settings = opened.settings
    notes = []
    model = opened.classifier
    head_is_all = model.head is not None and {*model.head.parameters()} == {*model.parameters()}
    if opened.requested.adapted is None and head_is_all and settings.adapted == "all-but-head":
        settings = settings.replace(adapted="all")
    if len(opened.images) < FEW:
        text = f"only {len(opened.images)} of at least {FEW} images: adapting may reduce accuracy"
        notes.append(Note("few-images", text, action="add images", level="warning"))
    return replace(opened, settings=settings).with_notes(notes)
