"""A file of answers: the classes that a person gave to images."""

import csv
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from tllib_ancon.runtime.errors import BadImages, UserError, reading, unknown_name
from tllib_ancon.runtime.text import cell, showable

Answer = int | Literal["another", "cannot tell"]
ANOTHER: Literal["another"] = "another"
CANNOT_TELL: Literal["cannot tell"] = "cannot tell"

COLUMNS = ["path", "class"]


def read_answers(file: Path, names: Sequence[str], classes: Sequence[str], root: str) -> dict[int, Answer]:
    """Position of an image -> its answer, from a CSV file of ``path,class``, with or without a header.

    An image list with labels is read as well. A path is one of the images' ``names``, which are paths below ``root``,
    or leads to one. A class is a name, ``another``, ``cannot tell`` or a
    number from 0 to K - 1, in this order."""
    meanings: dict[str, Answer] = {str(label): label for label in range(len(classes))}
    meanings |= {ANOTHER: ANOTHER, CANNOT_TELL: CANNOT_TELL}
    meanings |= {showable(name): label for label, name in enumerate(classes)}
    positions_of = defaultdict(list)  # a list can name an image twice
    for position, name in enumerate(names):
        positions_of[cell(name)].append(position)
    with reading(file, "answers"), open(file, encoding="utf-8-sig", newline="") as text:
        rows = list(csv.reader(text, skipinitialspace=True))
    answers: dict[int, Answer] = {}
    for line, row in enumerate(rows, start=1):
        try:
            path, answer = _path_and_answer(row)
            if not answer or [path.lower(), answer.lower()] == COLUMNS:
                continue
            positions = _positions_of(path, positions_of, root)
            if answer not in meanings:
                raise unknown_name("class", answer, meanings)
            if positions[0] in answers:
                raise BadImages(f"a second answer for {path!r}", "remove one")
        except UserError as error:
            raise BadImages(f"{file}, line {line}: {error}") from None
        answers |= dict.fromkeys(positions, meanings[answer])
    return answers


def _path_and_answer(row: Sequence[str]) -> list[str]:
    """Of a line of CSV, or of an image list, which has a space between them; of an empty line, two empty texts."""
    values = [value.strip() for value in row]
    if len(values) == 1:
        values = values[0].rsplit(maxsplit=1)
    if values and len(values) != len(COLUMNS):
        raise BadImages(f"expected a path and a class, separated by a comma, got {len(values)} columns")
    return values or ["", ""]


def _positions_of(path: str, positions_of: Mapping[str, list[int]], root: str) -> list[int]:
    """The positions of the image that a path names or leads to."""
    for candidate in (cell(path), cell(os.path.relpath(path or root, root))):
        if candidate in positions_of:
            return positions_of[candidate]
    raise BadImages(f"{path!r} is none of the images of the run", f"give its path below {root}, or remove the line")
