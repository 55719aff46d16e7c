"""The plan of an adaptation: all that is known before its first step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.batches import Batch
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.labels import Labels
from tllib_ancon.data.transforms import Preprocessing, mirror
from tllib_ancon.models.classifier import Classifier, NetworkClassifier, as_classifier
from tllib_ancon.models.outputs import MultiLabelOutput, OtherOutput
from tllib_ancon.runtime.types import Record
from tllib_ancon.training import devices, inputs
from tllib_ancon.training.facts import facts_of
from tllib_ancon.training.files import sha256
from tllib_ancon.training.image_transforms import Transforms, TransformSource, transform_source_of, transforms_of
from tllib_ancon.training.mirroring import without_mirrors
from tllib_ancon.training.model_classes import in_the_models_order, note_on_labels
from tllib_ancon.training.probing import probe_of
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.resolve import resolve
from tllib_ancon.training.run_record import images_record, network_record, sha256_of_tensors
from tllib_ancon.training.source import Source
from tllib_ancon.training.teaching import taught_labels

if TYPE_CHECKING:
    from tllib_ancon.training.teacher import Teacher


FEW = 16
"""Images of a target below which a line warns."""


@dataclass(frozen=True)
class Plan:
    """All that is known of an adaptation before its first step.

    Attributes:
        config: the settings, with every default filled in
        requested: the settings of the user alone
        source: the trained model
        model: a copy of it, which will be adapted; None for a model without logits (B, K)
        target: the images, with the classes of the model where it has some
        transforms: how images become tensors
        progress: where lines for the user go
        record: what ``config.json`` holds beside the settings
        head: the name of the model's head that the user passes
        probe: a few images as a network gets them, of a whole network
        taught: (N,) labels that train the model, -1 for none; None where no label does
        teacher: another model whose predictions enter the pseudo-labels
    """

    config: AdaptConfig
    requested: AdaptConfig
    source: Source
    model: Classifier | None
    target: Domain
    transforms: Transforms
    progress: Progress
    record: Record
    head: str | None = None
    probe: Batch | None = None
    taught: Labels | None = None
    teacher: Teacher | None = None

    def source_model(self) -> Classifier:
        """Another copy of the source model, as the adaptation begins with it."""
        return as_classifier(self.source.load(self.requested), self.head, self.probe)


def make_plan(
    requested: AdaptConfig,
    source: Source,
    images: Domain,
    recorded: Record,
    user_transforms: TransformSource,
    *,
    head: str | None = None,
    augment: Callable[[Any], Any] | None = None,
    answers: Any = None,
) -> Plan:
    """Decide all that is known before the first step.

    Args:
        requested: settings of the user
        source: the trained model
        images: the target, as it was opened
        recorded: ``config.json`` of the run that continues; empty for a new one
        user_transforms: transforms of the caller
        head, augment, answers: as for :func:`tllib_ancon.adapt`
    """
    progress = Progress(requested.quiet)
    devices.make_reproducible(requested.seed, requested.deterministic)
    network = source.load(requested)
    transform_source = transform_source_of(network, user_transforms)
    config, notes = resolve(requested, facts_of(requested, source, network, images, transform_source, recorded))
    progress.lines(notes)
    transforms = replace(transforms_of(config, network, images, transform_source), augment=augment)
    target = inputs.with_cache(config, images, transforms)
    probe = probe_of(target, transforms.evaluation) if source.is_whole else None
    model = _classifier(requested, source, network, head, probe)
    if model is None:
        return Plan(config, requested, source, None, target, transforms, progress, {}, head, probe)
    if transforms.second_view is mirror and requested.no_hflip is None and "no_hflip" not in recorded:
        config, transforms = without_mirrors(config, model, target, transforms, transform_source)
    model.preprocessing = transforms.preprocessing
    target = in_the_models_order(target, network, model.num_classes, source, progress.line)
    config = _with_parameters_to_train(config, requested, model, progress)
    note_on_labels(target, progress)
    if isinstance(model, NetworkClassifier):
        progress.lines(model.reader.notes)
    record = _record_of(config, source, network, model, target)
    if requested.log is not None and probe is not None:
        record["network"] = network_record(model, probe, _preprocessing_to_record(transforms, user_transforms))
    taught = None
    answers = config.answers if answers is None else answers
    if config.teach is not None or answers is not None:
        taught = taught_labels(config, target, answers, record)
    _warn_about(target, transforms, progress)
    return Plan(config, requested, source, model, target, transforms, progress, record, head, probe, taught)


def _preprocessing_to_record(transforms: Transforms, user_transforms: TransformSource) -> Preprocessing | None:
    """The preprocessing by which a later command prepares images; None where transforms of the user did all of it."""
    if isinstance(user_transforms, Transforms):
        return None
    return transforms.preprocessing


def _warn_about(target: Domain, transforms: Transforms, progress: Progress) -> None:
    """Print a line where a target is hard to adapt to: without augmentation, or with few images."""
    if transforms.augment is None and target.holds_tensors and isinstance(transforms.train, nn.Identity):
        progress.line("no augmentation is used, and AnCon needs one; pass `augment`, a function of a batch")
    if len(target) < FEW:
        progress.line(f"only {len(target)} of at least {FEW} images: adapting may reduce accuracy; add images")


def _classifier(
    requested: AdaptConfig, source: Source, network: nn.Module, head: str | None, probe: Batch | None
) -> Classifier | None:
    """The network as a classifier; None where its output is no logits (B, K) and the method needs none."""
    try:
        return as_classifier(network, head, probe)
    except OtherOutput as error:
        methods_without_logits = ("adabn",) if isinstance(error, MultiLabelOutput) else ("adabn", "tent")
        if source.checkpoint or requested.log is not None or requested.method not in methods_without_logits:
            raise
        return None


def head_learns(config: AdaptConfig, requested: AdaptConfig, model: Classifier) -> bool:
    """Whether a model learns as a whole by default, because its head has all of its parameters."""
    if requested.adapted is not None or config.adapted != "all-but-head" or model.head is None:
        return False
    in_head = {*model.head.parameters()}
    return all(parameter in in_head for parameter in model.parameters())


def _with_parameters_to_train(
    config: AdaptConfig, requested: AdaptConfig, model: Classifier, progress: Progress
) -> AdaptConfig:
    """The settings, with ``adapted=all`` by default for a model that is its head alone."""
    if not head_learns(config, requested, model):
        return config
    progress.line("the head has all parameters of the model; it learns (`adapted=all`)")
    return config.replace(adapted="all")


def _record_of(config: AdaptConfig, source: Source, network: nn.Module, model: Classifier, target: Domain) -> Record:
    """What ``config.json`` holds of the images and of the source model."""
    record: Record = {"inputs": images_record(target)}
    if not source.checkpoint:
        record["inputs"]["model"] = type(network).__qualname__
        record["inputs"]["weights_sha256"] = sha256_of_tensors(network.state_dict())
    elif Path(str(config.checkpoint)).is_file():
        record["inputs"]["checkpoint_sha256"] = sha256(Path(str(config.checkpoint)))
    if "taught" in source.recorded_settings:
        record["taught"] = source.recorded_settings["taught"]
    return record
