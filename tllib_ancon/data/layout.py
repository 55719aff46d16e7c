"""A layout: how the domains and classes of a dataset lie in a folder. Each is one file in ``layouts/``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tllib_ancon.data.folders import Tree
from tllib_ancon.data.image_source import ImageSource, joined

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
        allow_download: setting of :class:`~tllib_ancon.config.data.DataConfig`
    """

    root: Path
    dataset: str
    codes: Sequence[str]
    split: str = "train"
    classes: Sequence[str] | None = None
    allow_download: bool = False

    @cached_property
    def tree(self) -> Tree:
        return Tree(self.root)


class Layout(ABC):
    """A layout of data. A subclass and :func:`register` below it are all that a new one needs."""

    name: str = ""
    """As ``data`` takes it. One that ends in a colon is the beginning of names, such as ``hf:``."""
    placeholder: str = ""
    """What follows a name that ends in a colon, in words."""
    help: str = ""
    """What ``root`` holds, in the help text of ``data``."""
    resizing: str = SQUARE
    """Default resizing of its images: :data:`SQUARE`, or ``keep-ratio`` for images of any origin."""

    default_codes: Sequence[str] = ()
    """The domains that are opened where none is named."""

    def open(self, opening: Opening) -> ImageSource:
        """The domains of these codes as one."""
        return joined([self.open_domain(opening, code) for code in opening.codes])

    @abstractmethod
    def open_domain(self, opening: Opening, code: str) -> ImageSource:
        """The images of one domain."""


LAYOUTS: dict[str, Layout] = {}
"""Every layout by its name. :mod:`tllib_ancon.data.layouts` fills it."""


def register(instance: Layout) -> None:
    """Add a layout to the values of ``data``."""
    LAYOUTS[instance.name] = instance
