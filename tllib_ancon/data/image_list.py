"""TLLib's image lists: one ``relative/path label`` a line."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tllib_ancon.data.paths import Confined, Paths
from tllib_ancon.errors import UserError, one_line


class ImageList(NamedTuple):
    """What a list names: N paths, and (N,) labels unless it has none."""

    paths: Paths
    labels: NDArray[np.int64] | None


def read_image_list(
    list_file: Path, root: Path, num_classes: int | None = None, allow_outside: bool = False, first_label: int = 0
) -> ImageList:
    """Read an image list.

    The label is the last word of a line and the path is everything before it, so paths may hold spaces. Blank lines are
    skipped; Windows line ends, tabs and a byte-order mark are accepted. A list in which no line ends in an integer is
    a list of unlabelled images.

    Args:
        list_file (Path): the list, UTF-8 text
        root (Path): folder that relative paths start from
        num_classes (int, optional): labels must lie in [0, num_classes)
        allow_outside (bool): accept images that lie outside ``root``. Default: False
        first_label (int): the list's number of the first class, which becomes 0. Default: 0

    Returns: the images in the list's order

    Raises:
        UserError: a missing, empty or unreadable list; a line without path, without label in a labelled list, with
            a label out of range, or that leaves ``root`` (file and line)
    """
    reader = _Reader(list_file, root, num_classes, allow_outside, first_label)
    paths = Paths(reader, reader.root)
    if not paths:
        raise UserError(f"{list_file}: the list is empty; it must name at least one image")
    return ImageList(paths, np.asarray(reader.labels) if reader.labels else None)


class _Reader:
    """The paths of a list; once they are read, ``labels`` holds their labels, or nothing."""

    def __init__(
        self, list_file: Path, root: Path, num_classes: int | None, allow_outside: bool, first_label: int
    ) -> None:
        self.list_file = list_file
        self.root = os.path.normpath(root)
        self.num_classes = num_classes
        self.first_label = first_label
        self.inside = None if allow_outside else Confined(root)
        self.labels = array("q")
        self.first_unlabelled: tuple[int, str] | None = None

    def __iter__(self) -> Iterator[str]:
        for number, line in _lines(self.list_file):
            path, label = _split(line)
            if label is None:
                self.first_unlabelled = self.first_unlabelled or (number, line)
            else:
                self.labels.append(self._in_range(label, number))
            if self.first_unlabelled and self.labels:
                number, line = self.first_unlabelled
                raise self._error(number, f"no integer label at the end of {line!r} (other lines of the list have one)")
            yield self._resolved(path, number)

    def _error(self, number: int, message: str) -> UserError:
        return UserError(f"{self.list_file}, line {number}: {message}")

    def _in_range(self, label: int, number: int) -> int:
        numbered = label - self.first_label
        if 0 <= numbered < (self.num_classes or 2**63):
            return numbered
        expected = f"at least {self.first_label}"
        if self.num_classes is not None:
            expected += f" and below {self.first_label + self.num_classes}: {self.num_classes} classes"
        raise self._error(number, f"label {label} is out of range; it must be {expected}")

    def _resolved(self, path: str, number: int) -> str:
        if "\0" in path:
            raise self._error(number, "the path holds a null character")
        full = os.path.normpath(os.path.join(self.root, path))
        if self.inside is not None and not self.inside(full):
            raise self._error(number, f"{path!r} leads outside the dataset root; `allow_outside_root=True` accepts it")
        return full


def _lines(list_file: Path) -> Iterator[tuple[int, str]]:
    try:
        with open(list_file, encoding="utf-8-sig", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                stripped = line.strip()
                if stripped:
                    yield number, stripped
    except FileNotFoundError:
        raise UserError(f"{list_file}: image list not found") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{list_file}: cannot be read as UTF-8 text ({one_line(error)})") from error


def _split(line: str) -> tuple[str, int | None]:
    """Path and label; the label is None where the line does not end in a whole number."""
    words = line.rsplit(maxsplit=1)
    try:
        return words[0], int(words[1])
    except (ValueError, IndexError):
        return line, None
