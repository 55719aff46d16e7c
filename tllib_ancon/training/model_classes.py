"""Images beside a model: their labels in the order of the model's classes, by names or by numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn
from torch.utils.data import Subset

from tllib_ancon.data.class_folders import are_numbers, labelled, labels_by_name
from tllib_ancon.data.domain import Domain, numbered, require_same_order
from tllib_ancon.data.images import Files, Items
from tllib_ancon.data.labels import counted_from_one
from tllib_ancon.models.class_names import (
    IMAGENET_CLASSES,
    aliases_of,
    class_names_of,
    names_of_checkpoint,
    orders_naturally,
)
from tllib_ancon.runtime.errors import BadSetting, UserError, named
from tllib_ancon.runtime.text import counted, first_few, showable
from tllib_ancon.runtime.types import Show
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.source import Source

MOVE_THEM = "; move such folders out, or give them the names of classes, to have labels"

MOST_LISTED = 5
"""Names at most that a line lists."""

PARTS = frozenset(("train", "training", "test", "testing", "val", "valid", "validation", "dev", "eval"))
"""Usual names of the folders that hold the parts of a dataset."""

NAME_THEM = "`class_names=FILE` gives the names of the model's classes, in the order of its labels"


@dataclass(frozen=True)
class ModelClasses:
    """The K classes of a model.

    Attributes:
        names: in the order of the labels; None if unknown
        aliases: for each class every name that it may have
        orders_naturally: whether its library orders class folders by their numbers, as timm; None if that is unknown
    """

    num_classes: int
    names: list[str] | None
    aliases: list[list[str]]
    orders_naturally: bool | None

    @classmethod
    def of(cls, network: nn.Module, num_classes: int, source: Source) -> "ModelClasses":
        """What a user, the model's run, its library or its checkpoint tell, in this order."""
        if source.names is not None and num_classes > 1 and len(source.names) != num_classes:
            raise BadSetting(
                f"{named('class_names')} has {counted(len(source.names), 'name')}, {source.names[0]!r} first, and "
                f"the model has "
                f"{num_classes} classes",
                "name each class, in the order of the labels",
                setting="class_names",
            )
        names = source.classes
        if names is None or len(names) != num_classes:
            names = class_names_of(network, num_classes)
        if names is None and Path(source.checkpoint).is_file():
            names = names_of_checkpoint(source.checkpoint, num_classes)
        naturally = orders_naturally(network)
        if naturally is False and num_classes == IMAGENET_CLASSES:
            naturally = None
        return cls(num_classes, names, aliases_of(network, num_classes, names), naturally)

    @property
    def are_named(self) -> bool:
        return any(self.aliases) and self.names != numbered(self.num_classes)

    def orders_by_number(self, folders: Sequence[str]) -> bool:
        """Whether class folders without names that the model knows are ordered by their numbers."""
        if self.orders_naturally is None:
            return are_numbers(folders, self.num_classes)
        return self.orders_naturally

    @property
    def usable_names(self) -> list[str]:
        """Names that tell the classes apart; else none."""
        if self.names is None or len({*self.names}) != self.num_classes:
            return []
        return list(self.names)


def in_the_models_order(target: Domain, network: nn.Module, num_classes: int, source: Source, show: Show) -> Domain:
    """The images with labels and class names of the model, as :func:`with_classes` checks them.

    Subfolders of a plain folder are classes if each has the name of a class, or if all are numbered from 0 to K - 1.
    Else the images have no labels, and ``show`` gets one line. Labels of other images that have the names of the
    model's classes get the model's order.
    """
    classes = ModelClasses.of(network, num_classes, source)
    ordered = target
    if target.plain_folder and isinstance(target.images, Files):
        ordered = _labelled_by_folders(target, classes, show)
    elif target.labels is not None and isinstance(target.images, Items):
        ordered = _matched_to_its_dataset(target, classes, show)
    elif target.labels is not None:
        ordered = _relabelled(target, classes, show)
    if not ordered.classes and classes.usable_names:
        ordered = replace(ordered, classes=classes.usable_names)
    checked = with_classes(ordered, num_classes, source)
    _say_other_names(ordered, classes, show)
    return checked


def _labelled_by_folders(target: Domain, classes: ModelClasses, show: Show) -> Domain:
    """The images of a plain folder, with labels if its subfolders are the model's classes."""
    folders = _subfolders(target)
    root = getattr(target.images, "root", target.name)
    names = sorted({*folders} - {""})
    if not names:
        return target
    if "" in folders:
        show(_unlabelled_line(target, names, "images lie beside them"))
        return target
    labels = labels_by_name(names, classes.aliases)
    if len(labels) == len(names):
        return labelled(target, folders, labels, classes.usable_names or _named_by(labels, classes.num_classes))
    if are_numbers(names, classes.num_classes):
        order = _order(names, classes, show)
        show(
            f"{root}: its subfolders {names[0]} to {names[-1]} are taken as the "
            f"classes of these numbers, and give labels; {named('data', 'Folder')} reads images without labels"
        )
        return labelled(target, folders, _numbers_of(order), classes.usable_names or order)
    if {name.lower() for name in names} <= PARTS:
        show(
            f"{root}: images without labels, of all its parts ({', '.join(names)}); give {root}/{names[0]} for the "
            "images of one part, whose subfolders may be classes"
        )
        return target
    reason = _reason_without_labels(names, sorted(labels), classes)
    advice = _advice_for_folders(names, classes)
    if labels:
        advice = MOVE_THEM
    elif _hold_classes(target, classes):
        shown = first_few(names, MOST_LISTED, " ")
        reason = "they hold folders with the names of the model's classes"
        advice = f"; {named('data', 'ImageFolder')} and each of them as {named('target')} ({shown}) give labels"
    show(_unlabelled_line(target, names, reason, advice))
    return target


def _subfolders(domain: Domain) -> list[str]:
    """The first folder below the root of each of the N images; empty text for an image in the root itself."""
    root = Path(getattr(domain.images, "root", ""))
    parts = (Path(path).relative_to(root).parts for path in domain.paths or ())
    return [showable(part[0]) if len(part) > 1 else "" for part in parts]


def _say_other_names(target: Domain, classes: ModelClasses, show: Show) -> None:
    """Show a line where labels are those of classes that the model calls by other names."""
    if target.labels is None or not classes.are_named:
        return
    for label, name in enumerate(target.classes):
        aliases = classes.aliases[label]
        if aliases and name != str(label) and not labels_by_name([name], [aliases]):
            show(
                f"{target.name}: class {label} is {name!r} there and {aliases[0]!r} in the model; the labels are taken "
                f"by their numbers. {NAME_THEM}"
            )
            return


def _matched_to_its_dataset(target: Domain, classes: ModelClasses, show: Show) -> Domain:
    """Images with their labels in the order of the model's classes, by the names of both.

    The labels must be the ``targets`` of the dataset, as in torchvision's ``ImageFolder``. Other images are passed to
    :func:`_relabelled`.
    """
    dataset: Any = getattr(target.images, "dataset", None)
    indices: Any = slice(None)
    if isinstance(dataset, Subset):
        indices = dataset.indices
        dataset = dataset.dataset
    names = [str(name) for name in getattr(dataset, "classes", ())]
    labels = labels_by_name(names, classes.aliases)
    are_matched = 0 < len(names) == len({*labels.values()})
    if target.labels is None or not are_matched or not hasattr(dataset, "targets"):
        return _relabelled(target, classes, show)
    targets = np.asarray(dataset.targets)[indices][target.positions]
    if not np.array_equal(targets, target.labels):
        return _relabelled(target, classes, show)
    if [*labels.values()] != [*range(len(names))]:
        show(
            f"the labels are the targets of {type(dataset).__name__}, whose classes have another order than the "
            "model's; they are matched by their names"
        )
    names_of_images = [names[label] for label in targets]
    return labelled(target, names_of_images, labels, classes.usable_names or _named_by(labels, classes.num_classes))


def _hold_classes(target: Domain, classes: ModelClasses) -> bool:
    """Whether the folder in which each image lies has the name of a class."""
    names = {Path(path).parent.name for path in target.paths or ()}
    return len(labels_by_name(names, classes.aliases)) == len(names)


def _named_by(labels: dict[str, int], num_classes: int) -> list[str]:
    """Names of classes by their folders, and numbers for those without one."""
    folders = {label: folder for folder, label in labels.items()}
    return [folders.get(label, str(label)) for label in range(num_classes)]


def _numbers_of(order: Sequence[str]) -> dict[str, int]:
    return {name: label for label, name in enumerate(order)}


def _relabelled(target: Domain, classes: ModelClasses, show: Show) -> Domain:
    """Images with labels, in the order of the model's classes if their names show it."""
    names = list(target.classes)
    if target.labels is None or names == numbered(len(names)):
        return target
    names_of_images = [names[label] for label in target.labels]
    labels = labels_by_name(names, classes.aliases)
    if len(labels) == len(names) == len({*labels.values()}):
        return labelled(target, names_of_images, labels, classes.usable_names or _named_by(labels, classes.num_classes))
    if classes.are_named and not are_numbers(names, classes.num_classes):
        return target
    are_folders = isinstance(target.images, Files) and {*_subfolders(target)} <= {*names}
    if are_folders and names == sorted(names):
        order = _order(names, classes, show)
        return labelled(target, names_of_images, _numbers_of(order), order)
    return target


def _order(names: Sequence[str], classes: ModelClasses, show: Show) -> list[str]:
    """The folders in the order of the labels, where nobody named the classes; a line where orders differ."""
    by_characters = sorted(names)
    naturally = _natural_order(names)
    if classes.orders_by_number(names):
        order = naturally
        rejected = by_characters
        reason = "that of their numbers, as timm's"
    else:
        order = by_characters
        rejected = naturally
        reason = "that of their characters, as torchvision's"
    if order != rejected:
        label = next(label for label, name in enumerate(order) if name != rejected[label])
        show(
            f"class folders: label {label} is {order[label]!r}; the order is {reason} (the other has "
            f"{rejected[label]!r}). {NAME_THEM}"
        )
    return order


def _natural_order(folders: Iterable[str]) -> list[str]:
    """The order of timm: numbers by their value, letters in any case. torchvision's is that of the characters."""
    from timm.utils.misc import natural_key  # timm starts slowly

    return sorted(sorted(folders), key=natural_key)


def _reason_without_labels(names: Sequence[str], matched: Sequence[str], classes: ModelClasses) -> str:
    """Why subfolders are no classes of the model."""
    if not classes.are_named:
        return f"the names of the model's {classes.num_classes} classes are unknown"
    if matched:
        unmatched = sorted({*names} - {*matched})
        return f"{unmatched[0]!r} is no class of the model"
    class_names = [next(iter(aliases), str(label)) for label, aliases in enumerate(classes.aliases)]
    return f"the model's classes have other names ({first_few(class_names, MOST_LISTED)})"


def _advice_for_folders(names: Sequence[str], classes: ModelClasses) -> str:
    """How to take subfolders as classes."""
    if len(names) != classes.num_classes or classes.are_named:
        return f"; {NAME_THEM}"
    order = sorted(names)
    if classes.orders_by_number(names):
        order = _natural_order(names)
    shown = first_few(order, MOST_LISTED)
    return f"; {NAME_THEM}. {named('data', 'ImageFolder')} takes these folders as its classes, in the order {shown}"


def _unlabelled_line(target: Domain, names: Sequence[str], reason: str, advice: str = "") -> str:
    root = getattr(target.images, "root", target.name)
    folders = "its subfolders are not taken as classes"
    if len(names) == 1:
        folders = "its subfolder is not taken as a class"
    return f"{root}: images without labels; {folders} ({first_few(names, MOST_LISTED)}): {reason}{advice}"


def with_classes(target: Domain, num_classes: int, source: Source) -> Domain:
    """The target with as many classes as the model's head. Other classes than those of ``source`` are an error."""
    if num_classes == 1:
        raise UserError(
            f"checkpoint {source.checkpoint} has one output, a logit for a sigmoid. Pass the network in Python, or "
            "give its head two outputs (0, z)"
        )
    # Without the record of a run, a name that the target does not have may be another word for the same class.
    for label, (source_name, name) in enumerate(zip(source.classes or (), target.classes, strict=False)):
        if source_name == name or str(label) in (source_name, name):
            continue
        if source.run is not None or source_name in target.classes:
            raise UserError(
                f"checkpoint {source.checkpoint} is of another dataset: it was trained with {source_name!r} as class "
                f"{label}, which is {name!r} in domain {target.name}. Give a checkpoint or a target with the same "
                "classes"
            )
    folders = source.recorded_settings.get("inputs", {}).get("class_folders", {})
    require_same_order(target.class_folders, folders, target.name, f"the run {source.run}")
    if len(target.classes) == num_classes:
        return target
    if target.classes and list(target.classes) != numbered(len(target.classes)):
        raise _other_number(target, num_classes, source)
    return replace(target, classes=numbered(num_classes))


def _other_number(target: Domain, num_classes: int, source: Source) -> UserError:
    """The error for a dataset whose classes are not as many as the model's."""
    model = "the model"
    if source.checkpoint:
        model = f"checkpoint {source.checkpoint}"
    advice = f"pass {named('class_names', 'FILE')}, the names of the model's classes in the order of its labels"
    if target.labels is not None and {*_subfolders(target)} == {*target.classes}:
        advice += f", or {named('data', 'Folder')} to read images without labels"
    return UserError(f"{model} has {num_classes} classes, the dataset has {len(target.classes)}", advice)


def note_on_labels(target: Domain, progress: Progress) -> None:
    """Print a line where no image has label 0 and no class folder says that this is right."""
    if target.labels is None or target.class_folders:
        return
    line = counted_from_one(target.labels, target.num_classes)
    if line is not None:
        progress.line(line)
