"""Images in folders: class folders, any tree of images, corruptions in ImageNet-C's layout."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from tllib_ancon.data.class_folders import labels_by_name
from tllib_ancon.data.domain import Domain
from tllib_ancon.runtime.errors import MOST_SHOWN, UserError, reading, unknown_name
from tllib_ancon.runtime.text import showable

IMAGE_FOLDER, FOLDER = "ImageFolder", "Folder"
"""``ROOT/<domain>/<class>/*``; any tree."""

IMAGENET_C, CORRUPTED_IMAGES = LAYERED = ("ImageNetC", "CorruptedImages")
"""``ROOT/<corruption>/<severity>/<class>/*``. ``CorruptedImages`` has any classes, ``ImageNetC`` ImageNet's."""

ROOT = "."
"""The domain that is the dataset's root itself."""

SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".gif", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp", ".jp2")


class Tree:
    """Folders and images below a root, in torchvision's order, hidden ones left out. Links are followed; one that leads
    outside is an error unless ``allow_outside``, and left out with ``skip``."""

    def __init__(self, root: str | os.PathLike[str], allow_outside: bool = False, skip: bool = False):
        if not os.path.isdir(root):
            raise UserError(f"dataset root {root} is not a folder; give the folder that holds the dataset")
        self.root, self.allow_outside = Path(root), allow_outside
        self.skip, self.skipped = skip, dict[str, None]()  # why images are left out
        self.ignored: set[str] = set()
        real = os.path.join(os.path.realpath(root), "")
        self._inside = lru_cache(10_000)(lambda path: os.path.join(os.path.realpath(path), "").startswith(real))

    def holds(self, path: str) -> bool:
        """Whether a path stays below the root, all links followed."""
        in_folder = self.allow_outside or (self._inside(os.path.dirname(path)) and not os.path.islink(path))
        return in_folder or self._inside(path)

    def require(self, path: str | Path) -> str:
        if not self.holds(str(path)):
            raise UserError(f"{path} leads outside the dataset root; pass `allow_outside_root=True` to accept it")
        return str(path)

    def folders(self, folder: str | Path) -> list[str]:
        return [os.path.basename(path) for path, is_folder in _entries(folder) if is_folder]

    def images(self, folder: str | Path) -> list[str]:
        files = [path for path, is_folder in _entries(folder) if not is_folder]
        images = [path for path in files if path.lower().endswith(SUFFIXES)]
        self.ignored |= {*files} - {*images}
        return list(filter(self._taken, images))

    def _taken(self, path: str) -> bool:
        """Whether the tree holds a path and no link leads around; else an error or, with ``skip``, a reason."""
        try:
            if os.path.islink(path) and Path(path).parent.resolve().is_relative_to(os.path.realpath(path)):
                raise UserError(f"{path} is a link to a folder that it lies in; remove it")
            self.require(path)
        except UserError as error:
            if not self.skip:
                raise
            self.skipped[str(error).partition(";")[0]] = None
            return False
        return True

    def images_below(self, folder: str | Path) -> Iterator[str]:
        """Paths of the images in and below this folder: folder by folder, sorted by their paths."""
        places = [self.require(folder)]
        for place in places:
            places += filter(self._taken, (os.path.join(place, name) for name in self.folders(place)))
        return chain.from_iterable(map(self.images, sorted(places)))

    def layers(self) -> list[str]:
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
            raise UserError(f"{self.root} does not hold {code}; {layout}. Name a domain that is there")
        raise unknown_name(f"domain of {self.root}:", code, known)


def _entries(folder: str | Path) -> list[tuple[str, bool]]:
    with os.scandir(folder) as entries:
        return sorted(
            (entry.path, os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir())
            for entry in entries
            if not entry.name.startswith(".")
        )


def _domain_of(
    tree: Tree, codes: Sequence[str], classes: Sequence[str] | None, parts: Iterable[tuple[str | None, Iterable[str]]]
) -> Domain:
    order = {name: label for label, name in enumerate(classes or ())}
    paths: list[str] = []
    labels: list[int] = []
    for name, images in parts:
        paths += images
        labels += [] if name is None else [order[name]] * (len(paths) - len(labels))
    endings = sorted({os.path.splitext(path)[1].lower() or "no suffix" for path in tree.ignored})
    number = len(tree.ignored)
    ignored = f"{number:,} {'file' if number == 1 else 'files'} ignored ({', '.join(endings)})" * bool(number)
    if not paths:
        folders = ", ".join(str(tree.domain(code)) for code in codes)
        raise UserError(
            f"{folders}: no image here{ignored and f'; {ignored}'}. Give a folder with files of these suffixes: "
            f"{', '.join(SUFFIXES)}"
        )
    name = "+".join(tree.root.resolve().name if code == ROOT else code for code in codes)
    domain = Domain.of_files(name, paths, list(classes or ()), labels or None, str(tree.root))
    return replace(domain, ignored=ignored, skipped=[*tree.skipped])


def open_any(tree: Tree, codes: Sequence[str], classes: Sequence[str] | None) -> Domain:
    """Every image below these folders, without labels."""
    return _domain_of(tree, codes, classes, ((None, tree.images_below(tree.domain(code))) for code in codes))


def open_class_folders(tree: Tree, codes: Sequence[str], classes: Sequence[str] | None) -> Domain:
    """``root/domain/class/*``. Of given classes some may have no folder; else all domains have the same folders."""
    folders = [(folder, _class_folders_in(tree, folder, classes is not None)) for folder in map(tree.domain, codes)]
    others, expected = folders[0] if classes is None else ("the classes", classes)
    names = [showable(name) for name in expected]
    places: list[Path] = []
    for folder, inside in folders:
        here = [showable(name) for name in inside]
        strange = sorted({*here} - {*labels_by_name(here, [[name] for name in names])})
        missing = sorted({*names} - {*here}) if classes is None else []
        if strange or missing:
            raise UserError(
                f"{folder} has other class folders than {others}, {(strange or missing)[0]!r} first: {_shown(here)} "
                f"instead of {_shown(names)}; rename or remove the folders that differ"
            )
        places += [folder / name for name in inside]
    labels = labels_by_name((showable(place.name) for place in places), [[name] for name in names])

    def images(folder: Path) -> list[str]:
        inside = list(tree.images_below(folder))
        if not inside and classes is None:
            raise UserError(f"class folder {folder} holds no image ({', '.join(SUFFIXES)}); fill or remove it")
        return inside

    return _domain_of(tree, codes, names, ((names[labels[showable(place.name)]], images(place)) for place in places))


def _class_folders_in(tree: Tree, folder: Path, given: bool) -> list[str]:
    names = tree.folders(folder)
    if not names and tree.images(folder):
        raise UserError(
            f"{folder} holds images and no folder a class; to read images without labels, pass `data={FOLDER}`"
        )
    if not given and not any(tree.images(folder / name) for name in names):
        inner = next((name for name in names if tree.folders(folder / name)), None)
        hint = f"; if {inner!r} is a domain, name it in the place of the root" if inner else ""
        raise UserError(f"{folder}: no folder in it holds an image; expected a folder a class{hint}")
    return names


def _shown(names: list[str]) -> str:
    return ", ".join(names[:MOST_SHOWN]) + f", ... ({len(names)})" * (len(names) > MOST_SHOWN)


def open_corrupted(tree: Tree, dataset: str, codes: Sequence[str], subset: str | None) -> Domain:
    """``root/corruption/severity/class/*``; of a ``subset`` the same images of every corruption."""
    from timm.data.imagenet_info import ImageNetInfo  # timm starts slowly, and each spawned worker reads this file

    folders = [tree.domain(code, layered=True) for code in codes]
    names = {name for folder in folders for name in tree.folders(folder)}
    imagenet: Any = ImageNetInfo("imagenet-1k")
    classes = sorted(imagenet.label_names() if dataset == IMAGENET_C else names)  # the order of ImageNet classifiers
    strange, missing = sorted(names - set(classes)), sorted(set(classes) - names)
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
    return _domain_of(tree, codes, classes, parts)


def _subset(tree: Tree, folder: Path, subset: Path) -> Iterator[tuple[str, list[str]]]:
    for number, line in lines_of(subset):
        name = Path(line)
        if len(name.parts) != 2 or ".." in name.parts or name.is_absolute():
            raise UserError(f"{subset}, line {number}: expected class/name of an image, got {line!r}")
        if not (folder / name).is_file():
            raise UserError(f"{subset}, line {number}: {folder / name} does not exist; remove the line")
        yield name.parts[0], [tree.require(folder / name)]


def lines_of(file: Path) -> Iterator[tuple[int, str]]:
    with reading(file, "UTF-8 text"), open(file, encoding="utf-8-sig", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, line.strip()
