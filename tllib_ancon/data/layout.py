"""A layout: how the domains and classes of a dataset lie in a folder. Each is one file in ``layouts/``."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np

from tllib_ancon.data.folders import Tree
from tllib_ancon.data.image_source import ImageSource

SQUARE = "default"
"""TLLib's resizing to a square, whatever the aspect ratio."""


@dataclass(frozen=True)
class Opening:
    """Which images of a dataset are opened, and how.

    Attributes:
        root: folder of the dataset
        dataset: its name, as ``data`` takes it
        codes: names of the domains
        split: ``train`` or ``test`` if the dataset has two lists a domain
        classes: names of a model's classes, of which a domain may lack some; None: those of the dataset
    """

    root: Path
    dataset: str
    codes: Sequence[str]
    split: str = "train"
    classes: Sequence[str] | None = None

    @cached_property
    def tree(self) -> Tree:
        return Tree(self.root)


class Layout(ABC):
    """A layout of data. A subclass and :func:`register` below it are all that a new one needs."""

    name: str = ""
    """As ``data`` takes it."""
    help: str = ""
    """What ``root`` holds, in the help text of ``data``."""
    resizing: str = SQUARE
    """Default resizing of its images: :data:`SQUARE`, or ``keep-ratio`` for images of any origin."""

    default_codes: Sequence[str] = ()
    """The domains that are opened where none is named."""

    def open(self, opening: Opening) -> ImageSource:
        """The domains of these codes as one."""
        return _joined([self.open_domain(opening, code) for code in opening.codes])

    @abstractmethod
    def open_domain(self, opening: Opening, code: str) -> ImageSource:
        """The images of one domain."""


def _joined(domains: Sequence[ImageSource]) -> ImageSource:
    """The files of several domains of one dataset; without labels if one domain has none."""
    first = domains[0]
    if len(domains) == 1:
        return first
    for domain in domains:
        first.require_same_order(domain.class_folders, domain.name)
    name = "+".join(domain.name for domain in domains)
    paths = list(chain.from_iterable(domain.paths or () for domain in domains))
    classes = max((domain.classes for domain in domains), key=len)
    labels = [domain.labels for domain in domains if domain.labels is not None]
    all_labels = None
    if len(labels) == len(domains):
        all_labels = np.concatenate(labels)
    root = os.path.commonpath([domain.reader.root for domain in domains])
    return ImageSource.of_files(name, paths, classes, all_labels, root)


LAYOUTS: dict[str, Layout] = {}
"""Every layout by its name. :mod:`tllib_ancon.data.layouts` fills it."""


def register(instance: Layout) -> None:
    """Add a layout to the values of ``data``."""
    LAYOUTS[instance.name] = instance
