"""A second opinion: the model of a teacher is opened, and its classes are matched with those of the adapted model."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.data.image_source import numbered
from tllib_ancon.data.loading import UnlabelledImages
from tllib_ancon.data.transforms import mirror
from tllib_ancon.models.calling import evaluating
from tllib_ancon.models.classifier import Classifier, as_classifier
from tllib_ancon.models.foundation import load_named
from tllib_ancon.models.requirements import require_network
from tllib_ancon.opening.classes import ClassMap
from tllib_ancon.opening.defaults import USUAL_BATCH, Facts, resolve
from tllib_ancon.opening.images import PreparedImages, prepare
from tllib_ancon.opening.open import Opened, probe_of
from tllib_ancon.opening.source import Source, open_checkpoint
from tllib_ancon.opening.transforms import UNDECIDED, TransformRule, preprocessing_by
from tllib_ancon.runtime import devices
from tllib_ancon.runtime.errors import BadModel, BadSetting, UserError, named, one_line
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.text import first_few
from tllib_ancon.runtime.types import Show
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.run_record import sha256_of_tensors
from tllib_ancon.training.teacher import OpenTeacher, Teacher

LIBRARIES = ("hf", "open_clip")


def refuse_unread_teacher(config: AdaptConfig, teacher: Any) -> None:
    """Raise an error for a teacher that a method does not read.

    Args:
        config: settings of the user
        teacher: the caller's module. Default: what the settings name
    """
    if teacher is None and config.teacher is None:
        return
    if not methods.method_class(config.method).makes_labels:
        raise BadSetting(
            f"{named('teacher')} has no effect with {named('method', config.method)}, which makes no labels",
            "leave it out, or choose a method with pseudo-labels, such as ancon-auto",
            setting="teacher",
        )


def open_teacher(opened: Opened[AdaptConfig], passed_teacher: Any = None) -> Teacher | None:
    """The teacher of an adaptation, which has predicted a few images; None without one.

    Args:
        passed_teacher: what the caller passes; a path, which the settings have too, or nothing: what these name

    Raises:
        UserError: a teacher that cannot be opened, is the model itself or has other classes
    """
    config = opened.settings
    teacher = passed_teacher
    if passed_teacher is None or isinstance(passed_teacher, str | Path):
        teacher = config.teacher
    if teacher is None:
        return None
    classes = opened.classes
    if not classes.are_named:
        classes = ClassMap(classes.num_classes, opened.images.classes)
    progress = Progress(config.quiet)
    with _naming_the_teacher():
        source = _open(teacher, config, classes.distinct_names)
        notes: list[Note] = []
        network = source.load(PredictConfig(quiet=config.quiet), notes)
        progress.notes(notes)
    _refuse_the_model_itself(network, opened.classifier)
    digest = sha256_of_tensors(network.state_dict())
    prepared = _prepared(opened, source, network)
    transform = prepared.transforms.evaluation
    probe = probe_of(UnlabelledImages(prepared.domain, transform))
    model, logits = _tried(network, probe)
    columns = _columns(source.classes_of(network, logits.shape[1]), classes, progress.line)
    images = prepared.domain.without_labels()
    batch_size = max(config.batch_size, USUAL_BATCH)
    model.to(devices.device())
    opened_teacher = OpenTeacher(source.checkpoint, model, images, transform, columns, batch_size, digest)
    return Teacher(opened_teacher, config, opened.transforms.second_view is mirror, probe.ndim == 4)


@contextmanager
def _naming_the_teacher() -> Iterator[None]:
    """In this context errors about a model are about the teacher."""
    try:
        yield
    except UserError as error:
        action = "pass a run directory or hf:NAME, or in Python the network itself"
        raise BadModel(f"{named('teacher')}: {error.what}", action, setting="teacher") from error


def _open(teacher: Any, config: AdaptConfig, classes: Sequence[str]) -> Source:
    if not isinstance(teacher, str):
        return Source(module=require_network(teacher))
    library = teacher.partition(":")[0]
    if library not in LIBRARIES:
        return open_checkpoint(teacher, advice=f"in Python pass the network itself as {named('teacher')}")
    names = None
    if library == "open_clip" and [*classes] != numbered(len(classes)):
        names = [*classes]
    network, names = load_named(teacher, names, config.allow_download)
    return Source(teacher, module=network, names=names)


def _refuse_the_model_itself(network: nn.Module, model: nn.Module) -> None:
    tensors = [*network.state_dict().values()]
    tensors_of_model = [*model.state_dict().values()]
    if len(tensors) != len(tensors_of_model):
        return
    if all(map(_equal, tensors, tensors_of_model)):
        raise BadSetting(
            f"{named('teacher')} is the model itself, which has no second opinion",
            "pass another model, or leave it out",
            setting="teacher",
        )


def _equal(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and torch.equal(first.cpu(), second.cpu())


def _prepared(opened: Opened[AdaptConfig], source: Source, network: nn.Module) -> PreparedImages[PredictConfig]:
    """The target as the teacher gets it: by its own preprocessing, or by the model's where its own is unknown."""
    settings = PredictConfig(quiet=True)
    progress = Progress(opened.settings.quiet)
    resolved = resolve(settings, Facts(source)).settings
    transform_rule = UNDECIDED.completed_by(network, settings)
    is_known = preprocessing_by(dict(resolved), transform_rule.preprocessing) is not None
    if not is_known and not opened.images.is_raw:
        transform = opened.transforms.evaluation
        transform_rule = TransformRule(train=transform, evaluation=transform)
        progress.line("the preprocessing of the teacher is unknown: images are prepared as for the model")
    prepared = prepare(settings, source, network, opened.images, transform_rule)
    for note in prepared.notes:
        progress.line(f"teacher: {note}")
    return prepared


def _tried(network: nn.Module, probe: Tensor) -> tuple[Classifier, Tensor]:
    """The teacher as a classifier, and its logits for a few images."""
    try:
        model = as_classifier(network, None, probe)
        with evaluating(model), torch.no_grad():
            logits, _ = model.predict(probe.to(next(model.parameters()).device))
    except (RuntimeError, UserError) as error:
        shape = tuple(probe.shape)
        raise UserError(
            f"the {named('teacher')} cannot predict images {shape} ({one_line(error)})", "pass another one"
        ) from error
    return model, logits


def _columns(teacher: ClassMap, classes: ClassMap, show: Show) -> list[int]:
    """For each class of the model the class of the teacher with this name; without names, with this number."""
    if classes.are_named and teacher.are_named:
        columns = teacher.match(classes.distinct_names)
    elif classes.num_classes == teacher.num_classes:
        columns = [*range(teacher.num_classes)]
        show("names of classes are unknown: those of the teacher are taken to be in the order of the model's")
    else:
        columns = None
    if columns is None:
        raise BadModel(
            f"the {named('teacher')} has {teacher.num_classes} classes ({first_few(teacher.distinct_names, 3)}), and "
            f"not each of the model's {classes.num_classes} ({first_few(classes.distinct_names, 3)}) is one of them",
            "pass a teacher with the classes of the model",
            setting="teacher",
        )
    return columns
