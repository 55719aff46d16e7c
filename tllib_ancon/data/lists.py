"""Image lists: files of ``path label`` lines, and the domains of the images in them."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tllib_ancon.data.folders import Tree
from tllib_ancon.data.image_source import ImageSource, numbered
from tllib_ancon.runtime.errors import BadImages, reading

_MOST_DIGITS = 6
"""Of a label in a list: a longer number is no class."""


def read_class_names(file: Path) -> list[str]:
    """The names in a file with one on each line, in the order of the labels."""
    names = [line for _, line in _lines_of(file)]
    if len(set(names)) != len(names) or not names:
        raise BadImages(f"{file}: expected a distinct name for each class, in the order of the labels")
    return names


def listed_images(
    name: str, list_file: Path, root: Path, classes: Sequence[str] = (), first_label: int = 0
) -> ImageSource:
    """The images of a list: lines of a path and a label, after a space or a comma; without integers the images are
    unlabelled. Windows line ends, tabs and a byte-order mark are accepted. Relative paths start from ``root``;
    ``first_label`` becomes 0. Without names the largest label counts the classes.
    """
    tree = Tree(root)
    base = os.path.normpath(root)
    most_classes = len(classes) or 10**_MOST_DIGITS
    paths: list[str] = []
    labels: list[int] = []
    unlabelled = ""
    for number, line in _lines_of(list_file):
        where = f"{list_file}, line {number}"
        path, label = _path_and_label(line)
        paths.append(tree.require(os.path.normpath(os.path.join(base, path)), f"{where}: {path!r}"))
        if label is None:
            unlabelled = unlabelled or f"{where}: no label of at most {_MOST_DIGITS} digits at the end of {line!r}"
        elif label - first_label not in range(most_classes):
            raise BadImages(f"{where}: label {label - first_label} is not from 0 to {most_classes - 1}", "correct it")
        else:
            labels.append(label - first_label)
        if unlabelled and labels:
            raise BadImages(f"{unlabelled} (other lines of the list have one)", "add it, or remove the line")
    if not paths:
        raise BadImages(f"{list_file}: the list is empty", "it must name at least one image")
    if not labels:
        return ImageSource.of_files(name, paths, classes, None, base)
    return ImageSource.of_files(name, paths, classes or numbered(max(labels) + 1), np.array(labels), base)


def _lines_of(file: Path) -> Iterator[tuple[int, str]]:
    with reading(file, "UTF-8 text"), open(file, encoding="utf-8-sig", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, line.strip()


def _path_and_label(line: str) -> tuple[str, int | None]:
    """The two parts of a line; a line that does not end in an integer is a path alone."""
    parts = re.fullmatch(rf"(.+?)[\s,]\s*([+-]?\d{{1,{_MOST_DIGITS}}})", line)
    if parts is None:
        return line, None
    return parts[1].rstrip(), int(parts[2])
