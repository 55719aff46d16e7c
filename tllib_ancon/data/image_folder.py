"""Pictures as they lie on disk: one folder a class, or any tree of pictures."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tllib_ancon.data.domain import Domain
from tllib_ancon.data.paths import Confined, Paths
from tllib_ancon.data.pictures import FilePictures
from tllib_ancon.errors import MOST_SHOWN, UserError, unknown_name

IMAGE_FOLDER, FOLDER = "ImageFolder", "Folder"
SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""Of pictures; torchvision's."""

ROOT = "."
"""The domain that is the dataset's root itself."""


def open_image_folder(
    root: Path, codes: Sequence[str], classes: Sequence[str] | None = None, allow_outside: bool = False
) -> Domain:
    """Open ``root/domain/class/*``, or ``root/class/*`` as the domain ``.``, in torchvision's order.

    Args:
        root: holds a folder a domain
        codes: names of domains; several are joined
        classes: names of the classes in the order of the labels, e.g. those of a source model; folders may be missing.
            Default: the sorted names of the folders, the same in every domain
        allow_outside: follow links that lead outside ``root``. Default: False

    Raises:
        UserError: a folder that is missing, without pictures, or not laid out so; class folders of other names (both
            lists); names that differ in case alone; a link that leads outside the root
    """
    inside = None if allow_outside else Confined(root)
    domains = [_domain_folder(root, code, inside) for code in codes]
    found = [_class_names(folder, given=classes is not None) for folder in domains]
    names = found[0] if classes is None else list(classes)
    for folder, here in zip(domains, found, strict=True):
        _check_names(folder, here, names, f"{domains[0]}" if classes is None else "")
    parts = [(folder / name, names.index(name)) for folder, here in zip(domains, found, strict=True) for name in here]
    paths, labels = _listed(root, parts, inside, empty_allowed=classes is not None)
    return Domain(_name(root, codes), FilePictures(paths), names, labels)


def open_folder(
    root: Path, codes: Sequence[str], classes: Sequence[str] | None = None, allow_outside: bool = False
) -> Domain:
    """Open every picture below ``root/domain``, at any depth and without labels; ``.`` is the root itself.

    Args:
        root, codes, allow_outside: see :func:`open_image_folder`
        classes: names of the classes. Default: not known

    Raises:
        UserError: a folder that is missing or without pictures; names that differ in case alone; a link that leads
            outside the root
    """
    inside = None if allow_outside else Confined(root)
    folders = [_domain_folder(root, code, inside) for code in codes]
    paths = Paths(chain.from_iterable(pictures_below(folder, inside) for folder in folders), root)
    if not paths:
        raise UserError(f"{folders[0]} holds no picture; known endings: {', '.join(SUFFIXES)}")
    return Domain(_name(root, codes), FilePictures(paths), list(classes or ()))


def subfolders(folder: str | Path) -> list[str]:
    """Sorted names."""
    return _distinct(folder, [entry.name for entry in _entries(folder) if entry.is_dir()])


def pictures_in(folder: str | Path, inside: Confined | None = None) -> list[str]:
    """Sorted paths of the pictures in this folder, not below it.

    Raises:
        UserError: a link that leads out; names that differ in case alone
    """
    names = [entry.name for entry in _entries(folder) if entry.name.lower().endswith(SUFFIXES) and not entry.is_dir()]
    paths = [os.path.join(folder, name) for name in _distinct(folder, names)]
    for path in paths:
        _require_inside(path, inside)
    return paths


def pictures_below(folder: str | Path, inside: Confined | None = None) -> Iterator[str]:
    """Paths of the pictures below this folder, in torchvision's order: folder by folder, sorted by their paths.

    Raises:
        UserError: a link that leads out or in a circle; names that differ in case alone
    """
    for below in sorted(_folders_below(os.fspath(folder), inside)):
        yield from pictures_in(below, inside)


def _folders_below(folder: str, inside: Confined | None, above: frozenset[str] = frozenset()) -> Iterator[str]:
    _require_inside(folder, inside)
    real = os.path.realpath(folder)
    if real in above:
        raise UserError(f"{folder} is a link to a folder that it lies in")
    yield folder
    for name in subfolders(folder):
        yield from _folders_below(os.path.join(folder, name), inside, above | {real})


def _domain_folder(root: Path, code: str, inside: Confined | None) -> Path:
    folder = root if code == ROOT else root / code
    if folder.is_dir():
        _require_inside(str(folder), inside)
        return folder
    raise unknown_name(f"domain of {root}:", code, [ROOT, *subfolders(root)])


def _class_names(folder: Path, given: bool) -> list[str]:
    names = subfolders(folder)
    if not names and pictures_in(folder):
        raise UserError(f"{folder} holds pictures and no folder a class; `data` {FOLDER} reads pictures without labels")
    if not names:
        raise UserError(f"{folder} is empty; expected a folder a class, with pictures in it")
    if not given and not any(pictures_in(folder / name) for name in names):
        inner = next((name for name in names if subfolders(folder / name)), None)
        hint = f"; if {inner!r} is a domain, name it in the place of the root" if inner else ""
        raise UserError(f"{folder}: no folder in it holds a picture; expected a folder a class{hint}")
    return names


def _check_names(folder: Path, here: Sequence[str], names: Sequence[str], first: str) -> None:
    """``first`` is the folder that ``names`` come from, or empty where they were given."""
    strange = sorted(set(here) - set(names))
    if strange or (first and set(here) != set(names)):
        where = first or "the classes"
        differing = strange or sorted(set(names) - set(here))
        raise UserError(
            f"{folder} has other class folders than {where}, {differing[0]!r} first: {_shown(here)} instead of "
            f"{_shown(names)}"
        )


def _listed(
    root: Path, parts: Sequence[tuple[Path, int]], inside: Confined | None, empty_allowed: bool
) -> tuple[Paths, NDArray[np.int64]]:
    counts = []

    def pictures() -> Iterator[str]:
        for folder, _ in parts:
            count = 0
            for path in pictures_below(folder, inside):
                count += 1
                yield path
            if not count and not empty_allowed:
                raise UserError(f"class folder {folder} holds no picture ({', '.join(SUFFIXES)}); fill or remove it")
            counts.append(count)

    paths = Paths(pictures(), root)
    if not paths:
        raise UserError(f"{root}: no class folder holds a picture; known endings: {', '.join(SUFFIXES)}")
    return paths, np.repeat(np.array([label for _, label in parts]), counts)


def _name(root: Path, codes: Sequence[str]) -> str:
    return "+".join(root.resolve().name if code == ROOT else code for code in codes)


def _entries(folder: str | Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError as error:
        raise UserError(f"{folder} cannot be read ({error.strerror})") from error


def _distinct(folder: str | Path, names: list[str]) -> list[str]:
    """The sorted names, if no two differ in case alone: where case is ignored one of them is lost."""
    known: dict[str, str] = {}
    for name in sorted(names):
        other = known.setdefault(name.casefold(), name)
        if other != name:
            raise UserError(f"{folder} holds {other!r} and {name!r}, which differ in case alone; rename one of them")
    return sorted(names)


def _require_inside(path: str, inside: Confined | None) -> None:
    if inside is not None and not inside(path):
        raise UserError(f"{path} leads outside the dataset root; `allow_outside_root=True` accepts it")


def _shown(names: Sequence[str]) -> str:
    more = f", ... ({len(names)})" if len(names) > MOST_SHOWN else ""
    return ", ".join(names[:MOST_SHOWN]) + more
