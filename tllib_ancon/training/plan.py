"""The plan of an adaptation: all that is known before its first step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor, nn

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.models.classifier import Classifier, as_classifier
from tllib_ancon.opening.open import Opened
from tllib_ancon.opening.source import Source
from tllib_ancon.opening.transforms import TransformRule, Transforms
from tllib_ancon.runs.files import sha256
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.types import Record
from tllib_ancon.training.first_pass import begin
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.run_record import images_record, network_record, sha256_of_tensors
from tllib_ancon.training.teacher import Teacher


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
        notes: what was decided about model, images and settings
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
    probe: Tensor | None = None
    teacher: Teacher | None = None
    notes: tuple[Note, ...] = ()

    def source_model(self) -> Classifier:
        """Another copy of the source model, as the adaptation begins with it."""
        network = self.source.load(self.requested)
        reader = self.source.reader
        return as_classifier(network, self.head, self.probe, reader=reader, num_classes=self.model.num_classes)


def make_plan(opened: Opened, user_transforms: TransformRule, is_resumed: bool) -> Plan:
    """Decide all that is known before the first step, and print the notes.

    Args:
        opened: the model and the target
        user_transforms: transforms of the caller
        is_resumed: whether the run continues, whose record has what the first pass decides
    """
    if not is_resumed:
        opened, _ = begin(opened)
    progress = Progress(opened.requested.quiet)
    progress.notes(opened.notes)
    probe = opened.probe if opened.source.is_whole else None
    opened.classifier.preprocessing = opened.transforms.preprocessing
    plan = Plan(
        opened.settings,
        opened.requested,
        opened.source,
        opened.classifier,
        opened.images,
        opened.transforms,
        progress,
        {},
        opened.model.head,
        probe,
        notes=opened.notes,
    )
    return replace(plan, record=_record_of(plan, opened.model.network, user_transforms))


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
