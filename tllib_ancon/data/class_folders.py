"""Class folders: the label of each folder, by the names of a model's classes or by the order of the folders."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tllib_ancon.data.domain import Domain
from tllib_ancon.runtime.text import showable


def _same_name(name: str) -> str:
    """What two names have in common that differ in case, in spaces, dashes and underscores, or in how accents
    are coded, on macOS as characters of their own."""
    composed = unicodedata.normalize("NFC", name)
    return re.sub(r"[\s_-]+", " ", showable(composed)).strip().casefold()


def labels_by_name(folders: Iterable[str], classes: Sequence[Sequence[str]]) -> dict[str, int]:
    """Folder -> label of the class with this name; folders of no class or of several are left out.

    Args:
        folders: names
        classes: for each class, in the order of the labels, every name that it has
    """
    exact = _labels_of_unique_names(classes, showable)
    alike = _labels_of_unique_names(classes, _same_name)
    labels = {folder: exact.get(folder, alike.get(_same_name(folder))) for folder in folders}
    return {folder: label for folder, label in labels.items() if label is not None}


def _labels_of_unique_names(classes: Sequence[Sequence[str]], form: Callable[[str], str]) -> dict[str, int]:
    """The label of each name, in this form, that one class alone has."""
    labels: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for label, names in enumerate(classes):
        distinct_names = set(map(form, names))
        counts.update(distinct_names)
        labels.update(dict.fromkeys(distinct_names, label))
    return {name: label for name, label in labels.items() if counts[name] == 1}


def are_numbers(folders: Iterable[str], num_classes: int) -> bool:
    """Whether the folders are named by all numbers from 0 to K - 1."""
    names = list(folders)
    if not all(name.isdecimal() for name in names):
        return False
    return sorted(map(int, names)) == list(range(num_classes))


def labelled(domain: Domain, folders: Sequence[str], labels: Mapping[str, int], classes: Sequence[str]) -> Domain:
    """The domain with the labels of the folder or class of each of its images."""
    return replace(
        domain, classes=list(classes), labels=np.array([labels[folder] for folder in folders]), plain_folder=False
    )
