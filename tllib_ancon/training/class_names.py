"""Images beside a model: their labels in the order of the model's classes, by names or by numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from tllib_ancon.data.class_folders import are_numbers, labelled, labels_by_name, natural_order, subfolders
from tllib_ancon.data.domain import Domain, numbered, require_same_order
from tllib_ancon.data.images import Files
from tllib_ancon.data.labels import counted_from_one
from tllib_ancon.models.class_names import (
    IMAGENET_CLASSES,
    aliases_of,
    class_names_of,
    names_of_checkpoint,
    orders_by_characters,
    orders_naturally,
)
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.source import Source

SHOWN = 5
"""Names at most that a line lists."""

NAMED = "`class_names=FILE` gives the names of the model's classes, in the order of its labels"


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
    def of(cls, network: nn.Module, num_classes: int, start: Source) -> "ModelClasses":
        """What a user, the model's run, its library or its checkpoint tell, in this order."""
        names = start.classes
        if names is None or len(names) != num_classes:
            names = class_names_of(network, num_classes)
        if names is None and Path(start.checkpoint).is_file():
            names = names_of_checkpoint(start.checkpoint, num_classes)
        naturally = True if orders_naturally(network) else None
        if orders_by_characters(network) and num_classes != IMAGENET_CLASSES:
            naturally = False
        return cls(num_classes, names, aliases_of(network, num_classes, names), naturally)

    @property
    def are_named(self) -> bool:
        return any(self.aliases) and self.names != numbered(self.num_classes)

    @property
    def usable_names(self) -> list[str]:
        """Names that tell the classes apart; else none."""
        return list(self.names) if self.names and len({*self.names}) == self.num_classes else []


def in_the_models_order(
    target: Domain, network: nn.Module, num_classes: int, start: Source, show: Callable[[str], None]
) -> Domain:
    """The images with labels and class names of the model, as :func:`with_classes` checks them.

    Subfolders of a plain folder are classes if each has the name of a class, or if all are numbered from 0 to K - 1.
    Else the images have no labels, and ``show`` gets one line. Labels of other images that have the names of the
    model's classes get the model's order.
    """
    classes = ModelClasses.of(network, num_classes, start)
    if target.plain_folder and isinstance(target.images, Files):
        target = _labelled_by_folders(target, classes, show)
    elif target.labels is not None:
        target = _relabelled(target, classes, show)
    if not target.classes and classes.usable_names:
        target = replace(target, classes=classes.usable_names)
    return with_classes(target, num_classes, start)


def _labelled_by_folders(target: Domain, classes: ModelClasses, show: Callable[[str], None]) -> Domain:
    folders = subfolders(target)
    names = sorted({*folders} - {""})
    if not names:
        return target
    labels = labels_by_name(names, classes.aliases)
    if "" not in folders and len(labels) == len(names):
        return labelled(target, folders, labels, classes.usable_names or _named_by(labels, classes.num_classes))
    if "" not in folders and are_numbers(names, classes.num_classes):
        order = _order(names, classes, show)
        labels = {name: label for label, name in enumerate(order)}
        return labelled(target, folders, labels, classes.usable_names or order)
    show(_unlabelled_line(target, names, "" in folders, sorted(labels), classes))
    return target


def _named_by(labels: dict[str, int], num_classes: int) -> list[str]:
    """Names of classes by their folders, and numbers for those without one."""
    folders = {label: folder for folder, label in labels.items()}
    return [folders.get(label, str(label)) for label in range(num_classes)]


def _relabelled(target: Domain, classes: ModelClasses, show: Callable[[str], None]) -> Domain:
    names, assert_labels = list(target.classes), target.labels
    if assert_labels is None or names == numbered(len(names)):
        return target
    each = [names[label] for label in assert_labels]
    labels = labels_by_name(names, classes.aliases)
    if len(labels) == len(names) == len({*labels.values()}):
        return labelled(target, each, labels, classes.usable_names or _named_by(labels, classes.num_classes))
    if classes.are_named and not are_numbers(names, classes.num_classes):
        return target
    if isinstance(target.images, Files) and names == sorted(names) and {*subfolders(target)} <= {*names}:
        order = _order(names, classes, show)
        return labelled(target, each, {name: label for label, name in enumerate(order)}, order)
    return target


def _order(names: Sequence[str], classes: ModelClasses, show: Callable[[str], None]) -> list[str]:
    """The folders in the order of the labels, where nobody named the classes; a line where orders differ."""
    by_characters, naturally = sorted(names), natural_order(names)
    is_natural = classes.orders_naturally
    if is_natural is None:
        is_natural = are_numbers(names, classes.num_classes)
    order, other = (naturally, by_characters) if is_natural else (by_characters, naturally)
    if order != other:
        first = next(place for place in range(len(order)) if order[place] != other[place])
        why = "that of their numbers, as timm's" if is_natural else "that of their characters, as torchvision's"
        show(
            f"class folders: label {first} is {order[first]!r}; the order is {why} (the other has {other[first]!r}). "
            f"{NAMED}"
        )
    return order


def _unlabelled_line(
    target: Domain, names: Sequence[str], beside: bool, matched: Sequence[str], classes: ModelClasses
) -> str:
    root = getattr(target.images, "root", target.name)
    if beside:
        why = "images lie beside them"
    elif not classes.are_named:
        why = f"the names of the model's {classes.num_classes} classes are unknown"
    elif matched:
        strange = sorted({*names} - {*matched})
        why = f"{strange[0]!r} is no class of the model"
    else:
        some = [next(iter(each), str(label)) for label, each in enumerate(classes.aliases)]
        why = f"the model's classes have other names ({listed(some)})"
    advice = "" if beside else f"; {NAMED}"
    if not beside and len(names) == classes.num_classes and not classes.are_named:
        advice += f". `data=ImageFolder` takes these folders as its classes, in the order {listed(sorted(names))}"
    folders = "its subfolder is not taken as a class" if len(names) == 1 else "its subfolders are not taken as classes"
    return f"{root}: images without labels; {folders} ({listed(names)}): {why}{advice}"


def listed(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + ", ..." * (len(names) > SHOWN)


def with_classes(target: Domain, num_classes: int, start: Source) -> Domain:
    """The target with as many classes as the model's head. Other classes than those of ``start`` are an error."""
    if num_classes == 1:
        raise UserError(
            f"checkpoint {start.checkpoint} has one output, a logit for a sigmoid. Pass the network in Python, or "
            "give its head two outputs (0, z)"
        )
    for label, (there, here) in enumerate(zip(start.classes or (), target.classes, strict=False)):
        known = start.run is not None or there in target.classes  # else it may be another word for the same
        if str(label) not in (there, here) and there != here and known:
            raise UserError(
                f"checkpoint {start.checkpoint} is of another dataset: it was trained with {there!r} as class {label}, "
                f"which is {here!r} in domain {target.name}. Give a checkpoint or a target with the same classes"
            )
    folders = start.recorded.get("inputs", {}).get("class_folders", {})
    require_same_order(target.class_folders, folders, target.name, f"the run {start.run}")
    numbers = list(target.classes) == numbered(len(target.classes))
    if target.classes and not numbers and len(target.classes) != num_classes:
        raise _other_number(target, num_classes, start)
    return target if len(target.classes) == num_classes else replace(target, classes=numbered(num_classes))


def _other_number(target: Domain, num_classes: int, start: Source) -> UserError:
    """The error for a dataset whose classes are not as many as the model's."""
    name = f"checkpoint {start.checkpoint}" if start.checkpoint else "the model"
    if start.names is not None and len(start.names) != num_classes:
        return UserError(
            f"`class_names` has {len(start.names)} names, and {name} has {num_classes} classes; write the name of each "
            "class on a line, in the order of the labels"
        )
    advice = "pass `class_names=FILE`, the names of the model's classes in the order of its labels"
    if target.labels is not None and {*subfolders(target)} == {*target.classes}:
        advice += ", or `data=Folder` to read images without labels"
    return UserError(f"{name} has {num_classes} classes, the dataset has {len(target.classes)}; {advice}")


def note_on_labels(target: Domain, progress: Progress) -> None:
    """Print a line where no image has label 0 and no class folder says that this is right."""
    if target.labels is None or target.class_folders:
        return
    line = counted_from_one(target.labels, target.num_classes)
    if line is not None:
        progress.line(line)
