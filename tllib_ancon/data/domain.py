"""A domain: a named list of images on disk with the classes of its dataset."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tllib_ancon.data.image_list import UNLABELLED, Sample
from tllib_ancon.errors import UserError


@dataclass(frozen=True)
class Domain:
    """Images of one domain, or of several joined.

    Attributes:
        name: domain codes joined by "+", e.g. ``A`` or ``Ar+Cl``
        samples: path and label of each image
        classes: names of the classes, in the order of the labels
        skipped: why images of the list were left out, one text each
        positions: of each image in the list of the domain; by default 0, 1, …
    """

    name: str
    samples: list[Sample]
    classes: list[str]
    skipped: list[str] = field(default_factory=list)
    positions: Sequence[int] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "positions", self.positions or range(len(self.samples)))

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def labelled(self) -> bool:
        return all(sample.label != UNLABELLED for sample in self.samples)

    def subset(self, indices: Iterable[int]) -> Domain:
        """The images at these positions, in this order."""
        kept = [int(index) for index in indices]
        samples, positions = [self.samples[index] for index in kept], [self.positions[index] for index in kept]
        return Domain(self.name, samples, self.classes, positions=positions)

    def without_labels(self) -> Domain:
        """The same images with every label removed: what adaptation is given."""
        samples = [Sample(sample.path, UNLABELLED) for sample in self.samples]
        return Domain(self.name, samples, self.classes, positions=self.positions)

    def fingerprint(self, root: str | Path) -> str:
        """SHA-256 of the paths below ``root`` and the labels, in their order."""
        digest = hashlib.sha256()
        for sample in self.samples:
            digest.update(f"{sample.path.removeprefix(str(root))} {sample.label}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()

    def require_labels(self) -> Domain:
        """This domain, or :class:`UserError` if an image has no label."""
        if not self.labelled:
            raise UserError(f"domain {self.name}: its image list has no labels, and a source domain needs them")
        return self
