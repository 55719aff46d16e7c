"""A file of answers: the classes that a person gave to images."""

import csv
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from tllib_ancon.runtime.errors import UserError, reading, unknown_name
from tllib_ancon.runtime.text import cell, showable

Answer = int | Literal["another", "cannot tell"]
ANOTHER: Literal["another"] = "another"
CANNOT_TELL: Literal["cannot tell"] = "cannot tell"

COLUMNS = ["path", "class"]


def opaque(name: str) -> str:
    """Name of an image's copy for a user, who shall not learn the class from the folder."""
    return hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:16] + ".jpg"


def read_answers(
    file: Path, names: Sequence[str], classes: Sequence[str], asked: Iterable[int] | None = None
) -> dict[int, Answer]:
    """Position of an image -> its answer, from a CSV file of ``path,class``, with or without this header.

    A path is one of the images' ``names``, or ends in the :func:`opaque` form of one. ``asked`` are the positions in
    question. A class is a name, ``another``, ``cannot tell`` or a number from 0 to K - 1, in this order."""
    classes = list(map(showable, classes))
    meanings: dict[str, Answer] = {str(label): label for label in range(len(classes))}
    meanings |= {ANOTHER: ANOTHER, CANNOT_TELL: CANNOT_TELL}
    meanings |= {name: classes.index(name) for name in classes}
    positions: dict[str, list[int]] = defaultdict(list)  # a list can name an image twice
    for position in range(len(names)) if asked is None else asked:
        for path in (cell(names[position]), opaque(names[position])):
            positions[path].append(int(position))
    with reading(file, "answers"), open(file, encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(text, skipinitialspace=True)
        rows = [(reader.line_num, row) for row in reader if row]
    if rows and [word.strip().lower() for word in rows[0][1]] == COLUMNS:
        rows = rows[1:]
    answers: dict[int, Answer] = {}
    lines: dict[str, int] = {}
    for line, row in rows:
        try:
            if len(row) != 2:
                raise UserError(f"expected a path and a class, got {len(row)} columns")
            name, answer = map(str.strip, row)
            key = cell(name) if cell(name) in positions else name[-len(opaque("")) :]
            if key not in positions and name in names:
                raise UserError(f"{name!r} is not in question: both models predict the same class. Remove the line")
            if key not in positions:
                raise UserError(f"{name!r} is none of the {len(names):,} images; remove the line")
            image = names[positions[key][0]]
            if image in lines:
                raise UserError(f"a second answer for {name!r}; the first is in line {lines[image]}; remove one")
            if answer and answer not in meanings:
                raise unknown_name("class", answer, [*classes, ANOTHER, CANNOT_TELL])
            lines[image] = line
            if answer:
                answers.update(dict.fromkeys(positions[key], meanings[answer]))
        except UserError as error:
            raise UserError(f"{file}, line {line}: {error}") from None
    return answers
