"""The plan of an adaptation: all that is known before its first step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.batches import Batch
from tllib_ancon.data.domain import Domain
from tllib_ancon.models.calling import called
from tllib_ancon.models.classifier import Classifier, as_classifier
from tllib_ancon.runs.files import sha256
from tllib_ancon.runtime.errors import named
from tllib_ancon.runtime.types import Record
from tllib_ancon.training import devices
from tllib_ancon.training.first_pass import FirstPass, first_pass
from tllib_ancon.training.image_transforms import TransformRule, Transforms
from tllib_ancon.training.inputs import PreparedImages, prepare
from tllib_ancon.training.probing import probe_of
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.run_record import images_record, network_record, sha256_of_tensors
from tllib_ancon.training.source import Source
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
        model: a copy of it, which will be adapted
        target: the images, with the classes of the model where it has some
        transforms: how images become tensors
        progress: where lines for the user go
        record: what ``config.json`` holds beside the settings
        head: the name of the model's head that the user passes
        probe: a few images as a network gets them, of a whole network
        teacher: another model whose predictions enter the pseudo-labels
    """

    config: AdaptConfig
    requested: AdaptConfig
    source: Source
    model: Classifier
    target: Domain
    transforms: Transforms
    progress: Progress
    record: Record
    head: str | None = None
    probe: Batch | None = None
    teacher: Teacher | None = None

    def source_model(self) -> Classifier:
        """Another copy of the source model, as the adaptation begins with it."""
        network = self.source.load(self.requested)
        reader = self.source.reader
        return as_classifier(network, self.head, self.probe, reader=reader, num_classes=self.model.num_classes)


def make_plan(
    requested: AdaptConfig,
    source: Source,
    images: Domain,
    recorded: Record,
    user_transforms: TransformRule,
    *,
    head: str | None = None,
) -> Plan:
    """Decide all that is known before the first step.

    Args:
        requested: settings of the user
        source: the trained model
        images: the target, as it was opened
        recorded: ``config.json`` of the run that continues; empty for a new one
        user_transforms: transforms of the caller
        head: as for :func:`tllib_ancon.adapt`
    """
    progress = Progress(requested.quiet)
    devices.make_reproducible(requested.seed, requested.deterministic)
    network = source.load(requested)
    prepared = prepare(requested, source, network, images, user_transforms.completed_by(network, requested), recorded)
    progress.lines(prepared.notes)
    probe = _probe(source, network, prepared)
    model = as_classifier(
        network,
        head,
        probe,
        reader=source.reader,
        num_classes=source.num_classes,
        original=source.callers_module,
    )
    predicted = None
    if not recorded:
        predicted = first_pass(prepared.config, model, prepared.domain, prepared.transforms.evaluation)
        prepared = _without_wrong_mirrors(prepared, requested, model, predicted)
    transforms = prepared.transforms
    model.preprocessing = transforms.preprocessing
    classes = source.classes_of(network, model.num_classes)
    target, notes = classes.label(prepared.domain, source.recorded_folders)
    progress.lines(map(str, notes))
    config = prepared.config
    if head_learns(config, requested, model):
        progress.line(f"the head has all parameters of the model; it learns ({named('adapted', 'all')})")
        config = config.replace(adapted="all")
    if predicted is not None:
        progress.lines(filter(None, [predicted.line(target.classes)]))
    _warn_about(target, config, transforms, progress)
    plan = Plan(config, requested, source, model, target, transforms, progress, {}, head, probe)
    return replace(plan, record=_record_of(plan, network, user_transforms))


def _without_wrong_mirrors(
    prepared: PreparedImages[AdaptConfig], requested: AdaptConfig, model: Classifier, predicted: FirstPass
) -> PreparedImages[AdaptConfig]:
    """The images of an adaptation. Where a mirror changes the class, they are by default those with ``no_hflip``."""
    mirrors = predicted.mirrors
    if mirrors is None or not mirrors.changes_class or not prepared.mirrors_by_default(requested):
        return prepared
    Progress(requested.quiet).line(mirrors.line())
    return prepared.unmirrored(model)


def _probe(source: Source, network: nn.Module, prepared: PreparedImages[AdaptConfig]) -> Batch | None:
    """A few images as a whole network gets them; a classifier of a checkpoint is tried with them, and needs none."""
    images: Batch = probe_of(prepared.domain, prepared.transforms.evaluation)
    if source.is_whole:
        return images
    called(network, images)
    return None


def _warn_about(target: Domain, config: AdaptConfig, transforms: Transforms, progress: Progress) -> None:
    """Print a line where a target is hard to adapt to: without augmentation, or with few images."""
    is_augmented = transforms.augment is not None or not isinstance(transforms.train, nn.Identity)
    if methods.method_class(config.method).makes_labels and target.is_raw and not is_augmented:
        progress.line(
            f"no augmentation is used, and pseudo-labels need one; pass {named('augment')}, a function of a batch"
        )
    if len(target) < FEW:
        progress.line(f"only {len(target)} of at least {FEW} images: adapting may reduce accuracy; add images")


def head_learns(config: AdaptConfig, requested: AdaptConfig, model: Classifier) -> bool:
    """Whether a model learns as a whole by default, because its head has all of its parameters."""
    if requested.adapted is not None or config.adapted != "all-but-head" or model.head is None:
        return False
    in_head = {*model.head.parameters()}
    return all(parameter in in_head for parameter in model.parameters())


def _record_of(plan: Plan, network: nn.Module, user_transforms: TransformRule) -> Record:
    """What ``config.json`` holds of the images, of the source model and of its network."""
    recorded_inputs = images_record(plan.target)
    checkpoint = Path(str(plan.config.checkpoint))
    if not plan.source.checkpoint:
        recorded_inputs["model"] = type(network).__qualname__
        recorded_inputs["weights_sha256"] = sha256_of_tensors(network.state_dict())
    elif checkpoint.is_file():
        recorded_inputs["checkpoint_sha256"] = sha256(checkpoint)
    record: Record = {"inputs": recorded_inputs}
    if plan.source.recorded_settings.get("bottleneck_dropout"):
        record["bottleneck_dropout"] = plan.source.recorded_settings["bottleneck_dropout"]
    if plan.requested.log is not None and plan.probe is not None:
        preprocessing = None
        if user_transforms.evaluation is None:
            preprocessing = plan.transforms.preprocessing
        record["network"] = network_record(plan.model, plan.probe, preprocessing)
    return record
