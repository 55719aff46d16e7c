"""Images in folders: class folders, any tree of images, corruptions in ImageNet-C's layout."""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import Paths
from tllib_ancon.errors import MOST_SHOWN, UserError, reading, unknown_name
from tllib_ancon.text import showable

IMAGE_FOLDER, FOLDER = "ImageFolder", "Folder"
"""``ROOT/<domain>/<class>/*``; any tree."""

IMAGENET_C, CORRUPTED_IMAGES = LAYERED = ("ImageNetC", "CorruptedImages")
"""``ROOT/<corruption>/<severity>/<class>/*``. ``CorruptedImages`` has any classes, ``ImageNetC`` ImageNet's."""

ROOT = "."
"""The domain that is the dataset's root itself."""

SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".gif", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp", ".jp2")
"""Of images."""


class Tree:
    """Folders and images below a root, in torchvision's order. Links are followed; a target outside the root is an
    error unless ``allow_outside``. Hidden files and folders are left out; ``ignored`` counts other files by suffix."""

    def __init__(self, root: str | os.PathLike[str], allow_outside: bool = False, skip: bool = False):
        if not os.path.isdir(root):
            raise UserError(f"dataset root {root} is not a folder; give the folder that holds the dataset")
        self.root, self.allow_outside = Path(root), allow_outside
        self._skip, self._ignored = skip, dict[str, Counter[str]]()
        self.skipped: dict[str, str] = {}  # path -> why it was left out
        real = os.path.join(os.path.realpath(root), "")
        self._inside = lru_cache(10_000)(lambda path: os.path.join(os.path.realpath(path), "").startswith(real))

    def holds(self, path: str) -> bool:
        """Whether a path stays below the root, all links followed; a folder is looked at once."""
        in_folder = self.allow_outside or (self._inside(os.path.dirname(path)) and not os.path.islink(path))
        return in_folder or self._inside(path)

    def require(self, path: str | Path) -> str:
        """This path, if the tree holds it."""
        if not self.holds(str(path)):
            raise UserError(f"{path} leads outside the dataset root; `allow_outside_root=True` accepts it")
        return str(path)

    def folders(self, folder: str | Path) -> list[str]:
        """Sorted names of the folders in this one."""
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if _is_folder(entry) and not entry.name.startswith("."))

    def images(self, folder: str | Path) -> list[str]:
        """Sorted paths of the images in this folder, not below it."""
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if not _is_folder(entry) and not entry.name.startswith("."))
        endings = [os.path.splitext(name)[1].lower() for name in names]
        self._ignored[str(folder)] = Counter(ending or "no suffix" for ending in endings if ending not in SUFFIXES)
        found = (os.path.join(folder, name) for name, ending in zip(names, endings, strict=True) if ending in SUFFIXES)
        return [path for path in found if self._takes(path)]

    def _takes(self, path: str) -> bool:
        if self._skip and not self.holds(path):
            self.skipped[path] = f"{path} leads outside the dataset root"
            return False
        return bool(self.require(path))

    @property
    def ignored(self) -> Counter[str]:
        """Suffix -> number of files that are no images, of the folders that were listed."""
        return sum(self._ignored.values(), Counter())

    def images_below(self, folder: str | Path) -> Iterator[str]:
        """Paths of the images in and below this folder: folder by folder, sorted by their paths."""
        return chain.from_iterable(map(self.images, sorted(self._folders_below(str(folder), frozenset()))))

    def _folders_below(self, folder: str, above: frozenset[str]) -> Iterator[str]:
        if not self._takes(folder):
            return
        real = os.path.realpath(folder)
        if real in above and not self._skip:
            raise UserError(f"{folder} is a link to a folder that it lies in; remove it")
        if real in above:
            self.skipped[folder] = f"{folder} is a link to a folder that it lies in"
            return
        yield folder
        for name in self.folders(folder):
            yield from self._folders_below(os.path.join(folder, name), above | {real})

    def layers(self) -> list[str]:
        """The severities of corruptions, as ``frost/5``."""
        found = (path for path in self.root.glob("*/[1-5]") if path.is_dir())
        return sorted(path.relative_to(self.root).as_posix() for path in found)

    def domain(self, code: str, layered: bool = False) -> Path:
        """The folder of a domain; of a ``layered`` one, of a severity of a corruption."""
        folder = self.root / code
        if folder.is_dir():
            return Path(self.require(folder))
        known = self.layers() if layered else [ROOT, *self.folders(self.root)]
        if not known:
            layout = "the layout of corrupted images is corruption/severity/class/*"
            raise UserError(f"{self.root} does not hold {code}; {layout}")
        raise unknown_name(f"domain of {self.root}:", code, known)


ImageList = tuple[Paths, NDArray[np.int64] | None]
"""N paths, and (N,) labels unless there are none."""


def listed(images: Iterable[tuple[str, int | None]], root: str | Path) -> ImageList:
    labels = array("q")

    def paths() -> Iterator[str]:
        for path, label in images:
            if label is not None:
                labels.append(label)
            yield path

    return Paths(paths(), root), np.asarray(labels) if labels else None


def _of_folders(
    tree: Tree,
    codes: Sequence[str],
    classes: Sequence[str] | None,
    parts: Iterable[tuple[str | None, Iterable[str]]],
) -> Domain:
    """A domain of the images in its folders, part by part, each of a class or of none."""
    label = {name: number for number, name in enumerate(classes or ())}
    images = ((path, None if name is None else label[name]) for name, images in parts for path in images)
    paths, labels = listed(images, tree.root)
    if not paths:
        folders, ignored = ", ".join(str(tree.domain(code)) for code in codes), _counted(tree.ignored)
        raise UserError(f"{folders}: no image here{ignored and f'; {ignored}'}. Known suffixes: {', '.join(SUFFIXES)}")
    name = "+".join(tree.root.resolve().name if code == ROOT else code for code in codes)
    domain = Domain.of_files(name, paths, list(classes or ()), labels)
    return replace(domain, ignored=_counted(tree.ignored), skipped=[*tree.skipped.values()])


def _counted(ignored: Counter[str]) -> str:
    """``301 files ignored (.heic, .txt)``; empty if there are none."""
    files = "file" if ignored.total() == 1 else "files"
    return f"{ignored.total():,} {files} ignored ({', '.join(sorted(ignored))})" if ignored else ""


def _is_folder(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):  # a link that leads to itself
        return entry.is_dir()
    return False


def open_any(tree: Tree, codes: Sequence[str], classes: Sequence[str] | None) -> Domain:
    """Every image below the folders of these domains, without labels."""
    return _of_folders(tree, codes, classes, ((None, tree.images_below(tree.domain(code))) for code in codes))


def open_class_folders(tree: Tree, codes: Sequence[str], classes: Sequence[str] | None) -> Domain:
    """``root/domain/class/*``. Of given classes some may have no folder; else all domains have the same folders."""
    folders = [(folder, _class_folders_in(tree, folder, classes is not None)) for folder in map(tree.domain, codes)]
    others, expected = folders[0] if classes is None else ("the classes", classes)
    names = [showable(name) for name in expected]
    for folder, found in folders:
        here = [showable(name) for name in found]
        strange = sorted(set(here) - set(names)) or sorted(set(names) - set(here)) * (classes is None)
        if strange:
            raise UserError(
                f"{folder} has other class folders than {others}, {strange[0]!r} first: {_shown(here)} instead of "
                f"{_shown(names)}"
            )

    def images(folder: Path) -> list[str]:
        inside = list(tree.images_below(folder))
        if not inside and classes is None:
            raise UserError(f"class folder {folder} holds no image ({', '.join(SUFFIXES)}); fill or remove it")
        return inside

    every = (folder / name for folder, found in folders for name in found)
    return _of_folders(tree, codes, names, ((showable(folder.name), images(folder)) for folder in every))


def _class_folders_in(tree: Tree, folder: Path, given: bool) -> list[str]:
    names = tree.folders(folder)
    if not names and tree.images(folder):
        raise UserError(f"{folder} holds images and no folder a class; `data` {FOLDER} reads images without labels")
    if not names:
        raise UserError(f"{folder} is empty; expected a folder a class, with images in it")
    if not given and not any(tree.images(folder / name) for name in names):
        inner = next((name for name in names if tree.folders(folder / name)), None)
        hint = f"; if {inner!r} is a domain, name it in the place of the root" if inner else ""
        raise UserError(f"{folder}: no folder in it holds an image; expected a folder a class{hint}")
    return names


def _shown(names: list[str]) -> str:
    return ", ".join(names[:MOST_SHOWN]) + f", ... ({len(names)})" * (len(names) > MOST_SHOWN)


def open_corrupted(tree: Tree, dataset: str, codes: Sequence[str], subset: str | None) -> Domain:
    """``root/corruption/severity/class/*`` with ImageNet's classes or any others; of a ``subset`` the same images of
    every corruption."""
    from timm.data.imagenet_info import ImageNetInfo  # timm starts slowly, and each spawned worker reads this file

    folders = [tree.domain(code, layered=True) for code in codes]
    found = {name for folder in folders for name in tree.folders(folder)}
    imagenet: Any = ImageNetInfo("imagenet-1k")
    classes = sorted(imagenet.label_names() if dataset == IMAGENET_C else found)  # the order of ImageNet classifiers
    strange, missing = sorted(found - set(classes)), sorted(set(classes) - found)
    if strange:
        raise UserError(
            f"{tree.root}: {strange[0]} is no WordNet id of ImageNet's 1000 classes; for other classes pass `data` "
            f"{CORRUPTED_IMAGES}"
        )
    if missing and subset is None:
        raise UserError(
            f"{tree.root} is incomplete: {len(missing)} of {len(classes)} class folders are missing, {missing[0]} "
            "first; name the images you have in a file and pass it as `subset`"
        )
    if subset is None:
        parts = ((name, tree.images(folder / name)) for folder in folders for name in tree.folders(folder))
    else:
        parts = (part for folder in folders for part in _subset(tree, folder, Path(subset)))
    return _of_folders(tree, codes, classes, parts)


def _subset(tree: Tree, folder: Path, subset: Path) -> Iterator[tuple[str, list[str]]]:
    for number, line in lines_of(subset):
        name = Path(line)
        if len(name.parts) != 2 or ".." in name.parts or name.is_absolute():
            raise UserError(f"{subset}, line {number}: expected class/name of an image, got {line!r}")
        if not (folder / name).is_file():
            raise UserError(f"{subset}, line {number}: {folder / name} does not exist")
        yield name.parts[0], [tree.require(folder / name)]


def lines_of(file: Path) -> Iterator[tuple[int, str]]:
    """Number and text of every line that is not blank."""
    with reading(file, "UTF-8 text"), open(file, encoding="utf-8-sig", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, line.strip()
