"""A domain: a named collection of images with classes and, where they are known, labels."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tllib_ancon.data.paths import Paths
from tllib_ancon.data.pictures import FilePictures, Pictures, Positions
from tllib_ancon.errors import UserError

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

    from tllib_ancon.data.cache import CachedImages
    from tllib_ancon.data.resizing import Resizing

UNLABELLED = -1


@dataclass(frozen=True, eq=False)
class Domain:
    """N images of one domain, or of several joined. Nothing is kept as an object a picture.

    Args:
        name: domain codes joined by "+", e.g. ``A`` or ``Ar+Cl``
        pictures: where the images come from
        classes: names of the classes, in the order of the labels; empty where they are not known
        labels: (N,) whole numbers in [0, K). Default: unlabelled
        positions: (N,) of each image among ``pictures``, which is the order of its list. Default: all
        skipped: why images of the list were left out, one text each
        caches: of resized images, by their resizing

    Raises:
        UserError: labels that are not N whole numbers in [0, K)
    """

    name: str
    pictures: Pictures
    classes: Sequence[str] = ()
    labels: NDArray[np.int64] | None = None
    positions: Positions = None  # type: ignore[assignment]
    skipped: Sequence[str] = ()
    caches: Mapping[Resizing, CachedImages] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.positions is None:
            object.__setattr__(self, "positions", np.arange(len(self.pictures)))
        if self.labels is not None:
            object.__setattr__(self, "labels", _checked(self.labels, len(self), len(self.classes), self.name))

    @classmethod
    def of_files(cls, name: str, paths: Sequence[str], classes: Sequence[str] = (), labels: Any = None) -> Domain:
        """Of the files at these paths."""
        return cls(name, FilePictures(paths), classes, labels)

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def labelled(self) -> bool:
        return self.labels is not None

    @property
    def paths(self) -> Paths | None:
        """Of the images; none where they do not come from files."""
        paths = self.pictures.paths
        return None if paths is None else paths.take(self.positions)

    @property
    def holds_tensors(self) -> bool:
        """Whether images are float tensors that a model takes as they are, neither resized nor normalised."""
        return self.pictures.holds_tensors

    def image(self, index: int, resizing: Resizing | None = None) -> Image.Image | NDArray[np.uint8] | Tensor:
        """One image: a PIL image in RGB; the bytes (H, W, 3) of the resized one where there is a cache of this
        resizing; or the tensor (C, H, W) of a domain that :attr:`holds_tensors`.

        Raises:
            UserError: it cannot be read (which, why)
        """
        if resizing is not None and resizing in self.caches:
            return self.caches[resizing](int(self.positions[index]))
        try:
            return self.pictures.image(int(self.positions[index]))
        except UserError as error:
            raise UserError(f"{error}; `skip_corrupt=True` leaves such images out") from error

    def subset(self, indices: ArrayLike) -> Domain:
        """The images at these places, in this order."""
        chosen = np.asarray(indices, dtype=np.int64)
        labels = None if self.labels is None else self.labels[chosen]
        return replace(self, labels=labels, positions=self.positions[chosen])

    def without_labels(self) -> Domain:
        """The same images with every label removed: what adaptation is given."""
        return replace(self, labels=None)

    def with_class_names(self, names: Sequence[str]) -> Domain:
        """The same images with other names of the classes."""
        return replace(self, classes=list(names))

    def fingerprint(self) -> str:
        """SHA-256 of the names of the images, below their root, and of the labels, in their order."""
        digest = hashlib.sha256(self.pictures.content())
        labels = [UNLABELLED] * len(self) if self.labels is None else self.labels.tolist()
        for identity, label in zip(self.pictures.identities(self.positions), labels, strict=True):
            digest.update(b"%s %d\n" % (identity, label))
        return digest.hexdigest()

    def require_labels(self) -> Domain:
        """This domain, or :class:`UserError` if its images have no labels."""
        if self.labels is None:
            raise UserError(f"domain {self.name}: its images have no labels, and a source domain needs them")
        return self


def numbered(num_classes: int) -> list[str]:
    """Names of classes that have none."""
    return [str(label) for label in range(num_classes)]


def _checked(labels: Any, count: int, num_classes: int, name: str) -> NDArray[np.int64]:
    given = np.asarray(labels)
    if given.shape != (count,) or not np.issubdtype(given.dtype, np.integer):
        raise UserError(
            f"domain {name}: labels are {given.dtype} {given.shape}; expected a whole number for each of {count} images"
        )
    if count and not 0 <= given.min() <= given.max() < num_classes:
        raise UserError(
            f"domain {name}: labels from {given.min()} to {given.max()}; expected 0 to {num_classes - 1}: it has "
            f"{num_classes} classes"
        )
    return given.astype(np.int64)
