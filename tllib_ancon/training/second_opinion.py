"""A second opinion: the model of a teacher is opened, and its classes are matched with those of the adapted model."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.models.checkpoints import sha256_of_tensors
from tllib_ancon.models.references import BY_NAME
from tllib_ancon.opening.classes import ClassMap
from tllib_ancon.opening.open import Opened, open_images, open_model
from tllib_ancon.opening.transforms import preprocessing_of_call
from tllib_ancon.runs.directory import refuse_own_checkpoint
from tllib_ancon.runtime.errors import BadModel, BadSetting, UserError, named
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.text import first_few
from tllib_ancon.training.callbacks.teacher import Teacher


def open_teacher(opened: Opened[AdaptConfig], passed_teacher: Any = None) -> Teacher | None:
    """The teacher of an adaptation, which has predicted a few images; None without one.

    Args:
        passed_teacher: what the caller passes; a path, which the settings have too, or nothing: what these name

    Raises:
        UserError: a teacher that cannot be opened or has other classes, or a method that makes no labels
    """
    settings = opened.settings
    teacher = passed_teacher
    if passed_teacher is None or isinstance(passed_teacher, str | Path):
        teacher = settings.teacher
    if teacher is None:
        return None
    if not methods.method_class(settings.method).makes_labels:
        raise BadSetting(
            f"{named('teacher')} has no effect with {named('method', settings.method)}, which makes no labels",
            "leave it out, or choose a method with pseudo-labels, such as ancon-auto",
            setting="teacher",
        )
    classes = opened.classes
    if not classes.are_named:
        classes = ClassMap(classes.num_classes, opened.images.classes)
    try:
        opened_teacher = _open(teacher, _settings_of(teacher, settings, classes), opened)
    except UserError as error:
        action = "pass a run directory or hf:NAME, or in Python the network itself"
        raise BadModel(f"{named('teacher')}: {error.what}", action, setting="teacher") from error
    refuse_own_checkpoint(settings.log, opened_teacher.source.checkpoint)
    digest = sha256_of_tensors(opened_teacher.model.network.state_dict())
    columns = _columns(opened_teacher.classes, classes)
    notes = [replace(note, text=f"teacher: {note.text}") for note in opened_teacher.notes]
    if not (classes.are_named and opened_teacher.classes.are_named):
        text = "names of classes are unknown: those of the teacher are taken to be in the order of the model's"
        notes.append(Note("teacher-order", text, "class_names"))
    return Teacher(opened_teacher, columns, opened, digest, notes)


def _settings_of(teacher: Any, settings: AdaptConfig, classes: ClassMap) -> PredictConfig:
    """The settings that open a teacher; a zero-shot model predicts the classes of the adapted one."""
    if not isinstance(teacher, str):
        return PredictConfig()
    library = teacher.partition(":")[0]
    if library not in BY_NAME:
        return PredictConfig(checkpoint=teacher)
    names = None
    if library == "open_clip" and classes.are_named:
        names = tuple(classes.distinct_names)
    return PredictConfig(arch=teacher, class_names=names, allow_download=settings.allow_download)


def _open(teacher: Any, settings: PredictConfig, opened: Opened[AdaptConfig]) -> Opened[PredictConfig]:
    """A copy of the teacher with the target as it gets it: by its own preprocessing, or by the model's where its own
    is unknown."""
    model = open_model(teacher, settings).copied()
    model.network.float()
    try:
        return open_images(opened.images, model, settings, labels=False)
    except BadModel as error:
        if error.setting != "norm_mean":
            raise
    transform = opened.transforms.evaluation
    preprocessing = preprocessing_of_call(None, transform)
    text = "its preprocessing is unknown: images are prepared as for the model"
    note = Note("teacher-preprocessing", text)
    return open_images(opened.images, model, settings, labels=False, preprocessing=preprocessing).with_notes([note])


def _columns(teacher: ClassMap, classes: ClassMap) -> list[int]:
    """For each class of the model the class of the teacher with this name; without names, with this number."""
    columns = None
    if classes.are_named and teacher.are_named:
        columns = teacher.match(classes.distinct_names)
    elif classes.num_classes == teacher.num_classes:
        columns = [*range(teacher.num_classes)]
    if columns is None:
        raise BadModel(
            f"the {named('teacher')} has {teacher.num_classes} classes ({first_few(teacher.distinct_names, 3)}), and "
            f"not each of the model's {classes.num_classes} ({first_few(classes.distinct_names, 3)}) is one of them",
            "pass a teacher with the classes of the model",
            setting="teacher",
        )
    return columns
