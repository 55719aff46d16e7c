"""A file of answers: the classes that a person gave to images."""

import csv
import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from tllib_ancon.runtime.errors import BadImages, UserError, reading, unknown_name
from tllib_ancon.runtime.text import cell, showable

Answer = int | Literal["another", "cannot tell"]
ANOTHER: Literal["another"] = "another"
CANNOT_TELL: Literal["cannot tell"] = "cannot tell"

COLUMNS = ["path", "class"]


def opaque(name: str) -> str:
    """Name of an image's copy for a user, who shall not learn the class from the folder."""
    return hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:16] + ".jpg"


def read_answers(
    file: Path, names: Sequence[str], classes: Sequence[str], root: str | None, positions: Iterable[int] | None = None
) -> dict[int, Answer]:
    """Position of an image -> its answer, from a CSV file of ``path,class``, with or without a header.

    A path is one of the images' ``names``, which are paths below ``root``, or leads to one, or ends in the
    :func:`opaque` form of one. ``positions`` are those of the images in question. Default: all. A class is a name,
    ``another``, ``cannot tell`` or a number from 0 to K - 1, in this order."""
    meanings = _meanings([showable(name) for name in classes])
    positions_by_path = _positions_by_path(names, range(len(names)) if positions is None else positions)
    answers: dict[int, Answer] = {}
    line_of: dict[str, int] = {}  # name of an image -> the line of its answer
    for line, row in _rows_of(file):
        try:
            if len(row) != len(COLUMNS):
                raise BadImages(f"expected a path and a class, separated by a comma, got {len(row)} columns")
            path, answer = row
            positions_of_image = _positions_of(path, positions_by_path, root or ".")
            name = names[positions_of_image[0]]
            if name in line_of:
                raise BadImages(f"a second answer for {path!r}; the first is in line {line_of[name]}", "remove one")
            if answer and answer not in meanings:
                raise unknown_name("class", answer, [*map(showable, classes), ANOTHER, CANNOT_TELL])
        except UserError as error:
            raise BadImages(f"{file}, line {line}: {error}") from None
        line_of[name] = line
        if answer:
            answers.update(dict.fromkeys(positions_of_image, meanings[answer]))
    return answers


def _meanings(classes: Sequence[str]) -> dict[str, Answer]:
    """What each word of a file means; the name of a class goes before a number."""
    meanings: dict[str, Answer] = {str(label): label for label in range(len(classes))}
    meanings |= {ANOTHER: ANOTHER, CANNOT_TELL: CANNOT_TELL}
    return meanings | {name: label for label, name in enumerate(classes)}


def _positions_by_path(names: Sequence[str], positions: Iterable[int]) -> dict[str, list[int]]:
    """The positions of each image by its name and by the name of its copy. A list can name an image twice."""
    positions_by_path: dict[str, list[int]] = defaultdict(list)
    for position in positions:
        for path in (cell(names[position]), opaque(names[position])):
            positions_by_path[path].append(int(position))
    return dict(positions_by_path)


def _rows_of(file: Path) -> list[tuple[int, list[str]]]:
    """The paths and classes in a CSV file with their lines, without the header and empty rows. Spreadsheets write
    semicolons or tabs for commas."""
    with reading(file, "answers"), open(file, encoding="utf-8-sig", newline="") as text:
        first_line = text.readline()
        text.seek(0)
        delimiter = next((mark for mark in ",;\t" if mark in first_line), ",")
        reader = csv.reader(text, delimiter=delimiter, skipinitialspace=True)
        rows = [(reader.line_num, [value.strip() for value in row]) for row in reader if row]
    return [(line, row) for line, row in rows if [value.lower() for value in row] != COLUMNS]


def _positions_of(path: str, positions_by_path: Mapping[str, list[int]], root: str) -> list[int]:
    """The positions of the image that a path names or leads to, or whose copy it names."""
    path_below_root = os.path.relpath(path or root, root)
    name_of_copy = path[-len(opaque("")) :]
    for candidate in (cell(path), cell(path_below_root), name_of_copy):
        if candidate in positions_by_path:
            return positions_by_path[candidate]
    raise BadImages(
        f"{path!r} is none of the images that two models predict differently",
        f"give its path below {root}, or remove the line",
    )
