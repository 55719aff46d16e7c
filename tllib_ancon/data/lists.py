"""Image lists: files of ``path label`` lines, and the domains of the images in them."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tllib_ancon.data.folders import Tree
from tllib_ancon.data.image_source import ImageSource, numbered
from tllib_ancon.data.labels import Labels
from tllib_ancon.runtime.errors import BadImages, reading

MOST_DIGITS = 6
"""Of a label in a list: a longer number is no class."""


class ListedImages(NamedTuple):
    """N paths, and (N,) labels unless there are none."""

    paths: list[str]
    labels: Labels | None


def read_class_names(file: Path) -> list[str]:
    """The names in a file with one on each line, in the order of the labels."""
    names = [line for _, line in _lines_of(file)]
    if len(set(names)) != len(names) or not names:
        raise BadImages(f"{file}: expected a distinct name for each class, in the order of the labels")
    return names


def read_image_list(list_file: Path, root: Path, num_classes: int | None = None, first_label: int = 0) -> ListedImages:
    """Read lines of a path and a label, after a space or a comma; without integers the images are unlabelled. Windows
    line ends, tabs and a byte-order mark are accepted. Relative paths start from ``root``; ``first_label`` becomes 0.
    """
    tree = Tree(root)
    base = os.path.normpath(root)
    paths: list[str] = []
    labels: list[int] = []
    unlabelled = ""
    for number, line in _lines_of(list_file):
        where = f"{list_file}, line {number}"
        name, label = _path_and_label(line)
        if label is None:
            unlabelled = unlabelled or f"{where}: no label of at most {MOST_DIGITS} digits at the end of {line!r}"
        else:
            labels.append(label - first_label)
            _require_in_range(labels[-1], where, num_classes)
        if unlabelled and labels:
            raise BadImages(f"{unlabelled} (other lines of the list have one)", "add it, or remove the line")
        path = os.path.normpath(os.path.join(base, name))
        paths.append(tree.require(path, f"{where}: {name!r}"))
    if not paths:
        raise BadImages(f"{list_file}: the list is empty", "it must name at least one image")
    return ListedImages(paths, np.array(labels) if labels else None)


def listed_images(
    name: str, list_file: Path, root: Path, classes: Sequence[str] = (), first_label: int = 0
) -> ImageSource:
    """The images of a list. Without names the largest label counts the classes."""
    paths, labels = read_image_list(list_file, root, len(classes) or None, first_label)
    if not classes and labels is not None:
        classes = numbered(int(labels.max()) + 1)
    return ImageSource.of_files(name, paths, classes, labels, os.path.normpath(root))


def _lines_of(file: Path) -> Iterator[tuple[int, str]]:
    with reading(file, "UTF-8 text"), open(file, encoding="utf-8-sig", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, line.strip()


def _path_and_label(line: str) -> tuple[str, int | None]:
    """The two parts of a line; a line that does not end in an integer is a path alone."""
    parts = re.fullmatch(rf"(.+?)[\s,]\s*([+-]?\d{{1,{MOST_DIGITS}}})", line)
    if parts is None:
        return line, None
    return parts[1].rstrip(), int(parts[2])


def _require_in_range(label: int, where: str, num_classes: int | None) -> None:
    if label < 0 or (num_classes is not None and label >= num_classes):
        classes = "a class" if num_classes is None else f"one of {num_classes} classes, 0 to {num_classes - 1}"
        raise BadImages(f"{where}: label {label} is not {classes}", "correct it")
