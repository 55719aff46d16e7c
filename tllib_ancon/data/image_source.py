"""A named collection of images with classes and, where they are known, labels."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image
from torch import Tensor

from tllib_ancon.data.labels import Labels, checked_labels
from tllib_ancon.data.readers import Bytes, Files, Loader, Positions, Reader
from tllib_ancon.runtime.errors import BadImages
from tllib_ancon.runtime.notes import Note


@dataclass(frozen=True, eq=False)
class ImageSource:
    """N images of one domain, or of several joined. Nothing is kept as an object an image.

    Args:
        name: domain codes joined by "+", e.g. ``A`` or ``Ar+Cl``
        reader: reads each by its number
        classes: names of the classes, in the order of the labels; empty if unknown
        labels: (N,) whole numbers in [0, K). Default: unlabelled
        positions: (N,) of each image for the reader. Default: all in order
        skipped: why images of the list were left out, one text each
        plain_folder: whether they are a folder whose subfolders may be the classes of a model
        cached: resizing -> position -> bytes (H, W, 3) of a resized image

    Raises:
        UserError: labels that are not N whole numbers in [0, K)
    """

    name: str
    reader: Reader
    classes: Sequence[str] = ()
    labels: Labels | None = None
    positions: Positions = None  # type: ignore[assignment]
    skipped: Sequence[str] = ()
    plain_folder: bool = False
    cached: Mapping[Any, Callable[[int], Bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.positions is None:
            object.__setattr__(self, "positions", np.arange(len(self.reader)))
        if self.labels is not None:
            labels = checked_labels(f"domain {self.name}: labels", self.labels, len(self), len(self.classes))
            object.__setattr__(self, "labels", labels)

    @classmethod
    def of_files(
        cls, name: str, paths: Sequence[str], classes: Sequence[str] = (), labels: Any = None, root: str = ""
    ) -> ImageSource:
        """The domain of the image files at these paths, most of them below ``root``."""
        return cls(name, Files(paths, root), classes, labels)

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def paths(self) -> Sequence[str] | None:
        """The paths of the images; None where they do not come from files."""
        return self.reader.paths(self.positions)

    @property
    def is_raw(self) -> bool:
        """Whether images are float tensors, which are neither resized nor normalised."""
        return self.reader.is_raw

    def image(self, index: int, resizing: Hashable = None) -> Image.Image | Bytes | Tensor:
        """One image: a PIL image in RGB, the cached bytes (H, W, 3) of this resizing, or of a domain that
        :attr:`is_raw` its tensor."""
        position = int(self.positions[index])
        if resizing in self.cached:
            return self.cached[resizing](position)
        return self.reader.read(position)

    def read_by(self, loader: Loader | None) -> ImageSource:
        """The same images, whose files this function reads; None: Pillow."""
        if loader is None:
            return self
        return replace(self, reader=self.reader.read_by(loader))

    def subset(self, indices: ArrayLike) -> ImageSource:
        """The images at these places, in this order."""
        chosen = np.asarray(indices, dtype=np.int64)
        labels = None
        if self.labels is not None:
            labels = self.labels[chosen]
        return replace(self, labels=labels, positions=self.positions[chosen])

    def with_labels(self, labels: ArrayLike) -> ImageSource:
        """The same images with these labels, which are numbers of a model's outputs."""
        numbers = checked_labels(f"domain {self.name}: labels", labels, len(self))
        return replace(self, classes=numbered(int(numbers.max(initial=0)) + 1), labels=numbers)

    def without_labels(self) -> ImageSource:
        """The same images with every label removed: what adaptation is given."""
        return replace(self, labels=None)

    @cached_property
    def class_folders(self) -> dict[str, int]:
        """Folder name -> label, where the images lie in one folder a class (``.../bike/001.jpg``); otherwise empty.
        Folders whose images have several labels are left out."""
        if self.paths is None or self.labels is None:
            return {}
        names = [os.path.basename(os.path.dirname(path)) for path in self.paths]
        pairs = sorted({*zip(names, self.labels.tolist(), strict=True)})
        number_of_labels = Counter(name for name, _ in pairs)
        folders = {name: label for name, label in pairs if number_of_labels[name] == 1}
        if len(folders) < 2 or len({*folders.values()}) < len(folders):
            return {}
        return folders

    def require_same_order(self, reference: Mapping[str, int], reference_name: str) -> None:
        """Raise an error for a folder among the ``class_folders`` that has another label in those of a reference."""
        folders = self.class_folders
        differing = [folder for folder, label in folders.items() if reference.get(folder, label) != label]
        if differing:
            folder = differing[0]
            raise BadImages(
                f"the class orders differ: {folder!r} has label {folders[folder]} in {self.name} and "
                f"{reference[folder]} in {reference_name} ({len(differing)} classes differ)",
                "give every list the same labels",
            )

    def notes(self) -> list[Note]:
        """What was decided when the images were opened."""
        if not self.skipped:
            return []
        count = len(self) + len(self.skipped)
        text = f"{len(self.skipped)} of the {count} images of domain {self.name} are left out"
        reasons = [Note("skipped-image", f"  {reason}", "skip_corrupt") for reason in self.skipped]
        return [Note("skipped-images", text, "skip_corrupt", level="warning"), *reasons]

    def fingerprint(self) -> str:
        """SHA-256 of the names of the images, below their root, and of the labels, in their order."""
        digest = hashlib.sha256(self.reader.identity())
        labels = np.full(len(self), -1) if self.labels is None else self.labels
        for key, label in zip(self.reader.keys(self.positions), labels.tolist(), strict=True):
            digest.update(b"%s %d\n" % (key, label))
        return digest.hexdigest()


def numbered(num_classes: int) -> list[str]:
    return list(map(str, range(num_classes)))
