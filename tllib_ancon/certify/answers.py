"""Answers to "which class is this?": what they may be, and where they come from other than from a page.

An answer is a class, ``"another"`` (neither class in question) or ``"cannot tell"``. For the difference of accuracy a
class counts +1 if it is the adapted model's, -1 if it is the start model's, else 0; the two others count 0. So an image
whose class the person cannot tell is one that no model gets right, a property of the image that the order of the labels
does not change: the guarantee holds for the accuracies counted so. The certificate says besides what the verdict would
be if each such image counted against it.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt

from tllib_ancon.certify.comparison import Comparison
from tllib_ancon.errors import UserError, unknown_name

Answer = int | Literal["another", "cannot tell"]
ANOTHER: Literal["another"] = "another"
CANNOT_TELL: Literal["cannot tell"] = "cannot tell"
Answers = dict[int, Answer]
"""Position of an image -> what it was answered."""

HEADER = ["path", "class"]


def outcome(answer: Answer, adapted: int, start: int) -> int:
    """+1 if the answer is the adapted model's class, -1 if it is the start model's, else 0."""
    return int(answer == adapted) - int(answer == start)


def checked_answer(answer: object, num_classes: int) -> Answer:
    """The answer, if it is one.

    Raises:
        UserError: neither a class from 0 to ``num_classes`` - 1 nor one of the two words
    """
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < num_classes:
        return answer
    if answer == ANOTHER:
        return ANOTHER
    if answer == CANNOT_TELL:
        return CANNOT_TELL
    raise UserError(f"an answer is a class from 0 to {num_classes - 1}, {ANOTHER!r} or {CANNOT_TELL!r}, got {answer!r}")


def read_answers(file: Path, comparison: Comparison) -> Answers:
    """Answers from a CSV file: ``path,class`` a line, with or without this header.

    A path is one of ``comparison.names``. A class is a name, ``another``, ``cannot tell`` or a number from 0 to K - 1,
    read as the first of these that fits. An empty one is no answer yet.

    Raises:
        UserError: the file cannot be read; a line without two columns; an image that is not in question or has an
            answer already; a class that does not exist (with file and line)
    """
    positions = _positions(comparison)
    answers: Answers = {}
    first_lines: dict[str, int] = {}
    for line, name, text in _lines(file):
        where = f"{file}, line {line}"
        if name not in positions:
            raise UserError(f"{where}: {_not_in_question(name, comparison)}")
        if name in first_lines:
            raise UserError(f"{where}: a second answer for {name!r}; the first is in line {first_lines[name]}")
        first_lines[name] = line
        if not text.strip():
            continue
        try:
            answer = parse_answer(text, comparison.classes)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
        answers.update(dict.fromkeys(positions[name], answer))
    return answers


def answers_of_labels(labels: npt.NDArray[Any], comparison: Comparison) -> Answers:
    """The answers of one who knows the labels, -1 where there is none.

    Args:
        labels: (N,) integers in [-1, K)

    Raises:
        UserError: not N labels, or one out of range
    """
    if labels.shape != (len(comparison),):
        raise UserError(f"labels have shape {labels.shape}; give one for each of {len(comparison):,} images")
    if labels.dtype.kind not in "iu" or labels.min() < -1 or labels.max() >= len(comparison.classes):
        raise UserError(f"labels are integers from -1 (none) to {len(comparison.classes) - 1}")
    return {int(i): int(labels[i]) for i in comparison.disagreements if labels[i] >= 0}


def parse_answer(text: str, classes: Sequence[str]) -> Answer:
    """An answer from its text.

    Raises:
        UserError: no class has this name or number
    """
    text = text.strip()
    if text in classes:
        return list(classes).index(text)
    if text == ANOTHER:
        return ANOTHER
    if text == CANNOT_TELL:
        return CANNOT_TELL
    if text.isdecimal() and int(text) < len(classes):
        return int(text)
    raise unknown_name("class", text, [*classes, ANOTHER, CANNOT_TELL])


def _positions(comparison: Comparison) -> dict[str, list[int]]:
    """Name -> positions in question: a list can name an image twice."""
    positions: dict[str, list[int]] = {}
    for position in comparison.disagreements:
        positions.setdefault(comparison.names[position], []).append(int(position))
    return positions


def _not_in_question(name: str, comparison: Comparison) -> str:
    if name in comparison.names:
        return f"{name!r} is not in question: both models say the same class"
    return f"{name!r} is none of the {len(comparison):,} images"


def _lines(file: Path) -> list[tuple[int, str, str]]:
    """Line number, path and class of each line that is not empty."""
    try:
        with open(file, encoding="utf-8-sig", newline="") as text:
            reader = csv.reader(text, skipinitialspace=True)
            rows = [(reader.line_num, row) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{file}: cannot be read as answers ({error})") from error
    if rows and [word.strip().lower() for word in rows[0][1]] == HEADER:
        rows = rows[1:]
    for line, row in rows:
        if len(row) != 2:
            raise UserError(f"{file}, line {line}: expected a path and a class, got {len(row)} columns")
    return [(line, row[0].strip(), row[1]) for line, row in rows]
