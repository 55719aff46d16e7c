"""The classes of a model, and the labels of images in their order: the only place where names or numbers meet."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tllib_ancon.data.image_source import ImageSource, numbered
from tllib_ancon.data.labels import Labels, checked_labels
from tllib_ancon.runtime.errors import BadImages, UserError, named
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.text import counted, first_few, showable

IMAGENET_CLASSES = 1000

MOST_LISTED = 5
"""Names at most that a note lists."""


@dataclass(frozen=True)
class ClassMap:
    """The K classes of a model.

    Attributes:
        num_classes: K
        names: (K,) in the order of the model's outputs; None if unknown
    """

    num_classes: int
    names: Sequence[str] | None = None

    @cached_property
    def vocabularies(self) -> list[list[str]]:
        """Further lists of K names for the same classes: those of ImageNet, where they are its classes."""
        return _imagenet_names(self.num_classes, self.names)

    @property
    def are_named(self) -> bool:
        if self.names is not None:
            return [*self.names] != numbered(self.num_classes)
        return bool(self.vocabularies)

    @property
    def distinct_names(self) -> list[str]:
        """The names, or numbers where names are unknown or do not tell the classes apart."""
        if self.names is None or len({*self.names}) < self.num_classes:
            return numbered(self.num_classes)
        return [*self.names]

    def match(self, names: Sequence[str]) -> list[int] | None:
        """The class of each name: all are names of different classes, or all are numbers from 0 to K - 1.

        Returns: one label for each name; None if a name is no class, or two are the same
        """
        by_form = {form: self._labels_of_names(form) for form in (showable, _same_name)}
        by_form[_without_zeros] = {str(label): label for label in range(self.num_classes)}
        for form, labels_of_names in by_form.items():
            labels = [labels_of_names[form(name)] for name in names if form(name) in labels_of_names]
            if len({*labels}) == len(names):
                return labels
        return None

    def _labels_of_names(self, form: Callable[[str], str]) -> dict[str, int]:
        """The label of each name, in this form, that one class alone has."""
        labels: dict[str, set[int]] = defaultdict(set)
        for label in range(self.num_classes):
            for name in self._aliases(label):
                labels[form(name)].add(label)
        return {name: min(classes) for name, classes in labels.items() if len(classes) == 1}

    def _aliases(self, label: int) -> Iterator[str]:
        """Every name of a class; a name with commas lists several, as those of transformers for ImageNet."""
        for names in (self.names, *self.vocabularies):
            if names:
                yield names[label]
                yield from (part.strip() for part in names[label].split(","))

    def label(
        self, images: ImageSource, recorded_folders: Mapping[str, int] = MappingProxyType({})
    ) -> tuple[ImageSource, list[Note]]:
        """The images with labels in the order of these classes.

        Subfolders of a plain folder are labels if they :meth:`match`; else the images have none. Labels of a dataset
        that names its classes get the order of the model; labels without names are numbers of the model's outputs.

        Args:
            images: as they were opened
            recorded_folders: folder -> label of the images that trained the model, whose order must be the same

        Returns: the images, and notes on what was decided

        Raises:
            BadImages: classes of a dataset that the model does not have, labels outside 0 to K - 1, another order
        """
        notes: list[Note] = []
        labelled = _with_folders_as_classes(images) if images.plain_folder else images
        if labelled.labels is not None:
            labelled, notes = self._in_order(labelled, labelled.labels)
        if labelled.labels is None and (self.are_named or len(labelled.classes) != self.num_classes):
            labelled = replace(labelled, classes=self.distinct_names)
        labelled.require_same_order(recorded_folders, "the run of the model")
        if labelled.labels is not None and not self.are_named:
            notes += _notes_on_first_label(labelled.labels, self.num_classes)
        return replace(labelled, plain_folder=False), notes

    def _in_order(self, images: ImageSource, labels: Labels) -> tuple[ImageSource, list[Note]]:
        names = [*images.classes]
        if names == numbered(len(names)) and not images.plain_folder:
            numbers = checked_labels(f"domain {images.name}: labels", labels, len(images), self.num_classes)
            return replace(images, classes=self.distinct_names, labels=numbers), []
        matched = self.match(names)
        if matched is not None:
            ordered = replace(images, classes=self._names_beside(names, matched), labels=np.array(matched)[labels])
            return ordered, _notes_on_numbers(images)
        if images.plain_folder:
            return replace(images, classes=[], labels=None), [self._unlabelled_note(images)]
        if not self.are_named and len(names) == self.num_classes:
            return images, []
        raise self._other_classes(images)

    def _names_beside(self, names: Sequence[str], labels: Sequence[int]) -> list[str]:
        """The names of the model; where it has none, those of the images."""
        class_names = self.distinct_names
        if class_names == numbered(self.num_classes):
            for name, label in zip(names, labels, strict=True):
                class_names[label] = name
        return class_names

    def _unlabelled_note(self, images: ImageSource) -> Note:
        shown = first_few([name for name in images.classes if name], MOST_LISTED)
        text = f"{images.name}: images without labels, as not all lie in folders with names of classes ({shown})"
        action = f"the model's classes are {first_few(self.distinct_names, MOST_LISTED)}"
        if not self.are_named:
            action = f"for labels pass {named('class_names')}, the names in the order of the model's outputs"
        return Note("no-labels", text, "class_names", action)

    def _other_classes(self, images: ImageSource) -> UserError:
        names = first_few(list(images.classes), MOST_LISTED)
        return BadImages(
            f"{images.name} has {counted(len(images.classes), 'class', 'classes')} ({names}), not all of which are "
            f"among the {self.num_classes} of the model ({first_few(self.distinct_names, MOST_LISTED)})",
            f"pass {named('class_names')}, the names in the order of the model's outputs, or images without labels",
            setting="class_names",
        )


def _same_name(name: str) -> str:
    """What two names have in common that differ in case, in spaces, dashes and underscores, or in how accents
    are coded, on macOS as characters of their own."""
    composed = unicodedata.normalize("NFC", name)
    return re.sub(r"[\s_-]+", " ", showable(composed)).strip().casefold()


def _without_zeros(name: str) -> str:
    """A number without zeros before it."""
    return name.lstrip("0") or name[:1]


def _with_folders_as_classes(images: ImageSource) -> ImageSource:
    """The images of a folder with the first folder below it as the class of each, empty text for an image in the folder
    itself. Without subfolders they have no labels."""
    root = Path(getattr(images.reader, "root", ""))
    parts = [Path(path).relative_to(root).parts for path in images.paths or ()]
    folders = [showable(part[0]) if len(part) > 1 else "" for part in parts]
    names, labels = np.unique(np.array(folders, dtype=object), return_inverse=True)
    if not any(names):
        return images
    return replace(images, classes=[*names], labels=labels)


def _notes_on_numbers(images: ImageSource) -> list[Note]:
    """A note where the names of folders are numbers."""
    if not images.plain_folder or not all(name.isdecimal() for name in images.classes):
        return []
    numbers = sorted(images.classes, key=int)
    text = f"{images.name}: folders {numbers[0]} to {numbers[-1]} give labels, the numbers of the model's outputs"
    action = f"{named('data', 'Folder')} reads images without labels"
    return [Note("labels-by-number", text, "data", action)]


def _notes_on_first_label(labels: Labels, num_classes: int) -> list[Note]:
    """A note where no label is 0, so that they may count from 1."""
    if not len(labels) or labels.min() != 1:
        return []
    text = f"no label is 0: they range from 1 to {labels.max()}, and the model has the classes 0 to {num_classes - 1}"
    return [Note("labels-from-one", text, "", "if the labels count from 1, subtract 1", "warning")]


def _imagenet_names(num_classes: int, names: Sequence[str] | None) -> list[list[str]]:
    """Lists of ImageNet's names for a model with its thousand classes; none for any other model."""
    if num_classes != IMAGENET_CLASSES or (names is not None and "tench" not in names[0].lower()):
        return []
    from timm.data.imagenet_info import ImageNetInfo  # timm starts slowly
    from torchvision.models import ResNet18_Weights

    imagenet: Any = ImageNetInfo("imagenet-1k")
    return [imagenet.label_names(), imagenet.label_descriptions(), ResNet18_Weights.DEFAULT.meta["categories"]]
