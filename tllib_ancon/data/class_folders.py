"""What the folders of a domain's images say about the order of its classes."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tllib_ancon.data.paths import Paths
from tllib_ancon.errors import UserError

PURITY = 0.9
"""Share of a folder's images that must have one label: a few wrong labels do not hide a class folder."""


def class_folders(paths: Paths | None, given: NDArray[np.int64] | None) -> dict[str, int]:
    """Folder name -> label, where the images lie in one folder a class (``.../bike/001.jpg``); otherwise empty.

    Args:
        paths, given: of the images and their labels; None where there are none
    """
    if paths is None or given is None:
        return {}
    labels: dict[str, Counter[int]] = defaultdict(Counter)
    for path, label in zip(paths, given.tolist(), strict=True):
        labels[os.path.basename(os.path.dirname(path))][label] += 1
    commonest = {folder: counts.most_common(1)[0] for folder, counts in labels.items()}
    pure = all(count >= PURITY * labels[folder].total() for folder, (_, count) in commonest.items())
    folders = {folder: label for folder, (label, _) in sorted(commonest.items())}
    return folders if pure and len(set(folders.values())) == len(folders) > 1 else {}


def require_same_order(here: Mapping[str, int], there: Mapping[str, int], name: str, other: str) -> None:
    """Refuse two domains in which a class folder of one name has two labels.

    Args:
        here, there: of :func:`class_folders`
        name, other: of the two, for the error

    Raises:
        UserError: the class orders differ (which class, both labels)
    """
    differing = [folder for folder in here if there.get(folder, here[folder]) != here[folder]]
    if differing:
        folder = differing[0]
        raise UserError(
            f"the class orders differ: {folder!r} has label {here[folder]} in {name} and {there[folder]} in {other} "
            f"({len(differing)} classes differ); give every list the same labels"
        )


def require_named_order(folders: Mapping[str, int], classes: Sequence[str], name: str, class_file: object) -> None:
    """Refuse a domain whose class folders have other labels than the list of class names says."""
    require_same_order(folders, {cls: label for label, cls in enumerate(classes)}, name, str(class_file))
