"""TLLib's image lists: one ``relative/path label`` a line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from tllib_ancon.errors import UserError

UNLABELLED = -1


class Sample(NamedTuple):
    """One image of a domain; ``label`` is :data:`UNLABELLED` where the list gives none."""

    path: str
    label: int


def read_image_list(
    list_file: Path, root: Path, num_classes: int | None = None, allow_outside: bool = False, first_label: int = 0
) -> list[Sample]:
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

    Returns: the samples in the list's order

    Raises:
        UserError: a missing, empty or unreadable list; a line without path, without label in a labelled list, with
            a label out of range, or that leaves ``root`` (file and line)
    """
    lines = _lines(list_file)
    labelled = any(_label(line) is not None for _, line in lines)
    samples = []
    for number, line in lines:
        where = f"{list_file}, line {number}"
        label, path = UNLABELLED, line
        if labelled:
            parsed = _label(line)
            if parsed is None:
                raise UserError(f"{where}: no integer label at the end of {line!r} (other lines of the list have one)")
            label = parsed - first_label
            path = line.rsplit(maxsplit=1)[0]
            if label < 0 or (num_classes is not None and label >= num_classes):
                end = "" if num_classes is None else f" and below {first_label + num_classes}: {num_classes} classes"
                raise UserError(f"{where}: label {parsed} is out of range; it must be at least {first_label}{end}")
        samples.append(Sample(_resolve(path, root, where, allow_outside), label))
    if not samples:
        raise UserError(f"{list_file}: the list is empty; it must name at least one image")
    return samples


def _lines(list_file: Path) -> list[tuple[int, str]]:
    try:
        text = list_file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{list_file}: image list not found") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{list_file}: cannot be read as UTF-8 text ({error})") from error
    stripped = ((number, line.strip()) for number, line in enumerate(text.split("\n"), start=1))
    return [(number, line) for number, line in stripped if line]


def _label(line: str) -> int | None:
    words = line.rsplit(maxsplit=1)
    if len(words) < 2:
        return None
    try:
        return int(words[1])
    except ValueError:
        return None


def _resolve(path: str, root: Path, where: str, allow_outside: bool) -> str:
    if "\0" in path:
        raise UserError(f"{where}: the path holds a null character")
    full = os.path.normpath(os.path.join(root, path))
    if not allow_outside and not is_inside(os.path.realpath(full), os.path.realpath(root)):
        raise UserError(f"{where}: {path!r} leads outside the dataset root; pass --allow-outside-root to accept it")
    return full


def is_inside(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)
