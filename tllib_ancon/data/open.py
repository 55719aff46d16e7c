"""Opening images as a domain: TLLib's lists, class folders, any tree of images, corruptions, Hugging Face, Python."""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tllib_ancon.data.domain import Domain, class_folders, numbered, require_same_order
from tllib_ancon.data.images import IMAGE_NAMES, Column, Items, Paths
from tllib_ancon.data.loading import read_each
from tllib_ancon.data.transforms import KEEP_RATIO
from tllib_ancon.errors import MOST_SHOWN, UserError, one_line, reading, unknown_name
from tllib_ancon.text import showable

IMAGE_LIST, IMAGE_FOLDER, FOLDER = "ImageList", "ImageFolder", "Folder"
"""``ROOT/image_list/<domain>.txt``, with class names in ``image_list/classes.txt``; ``ROOT/<domain>/<class>/*``; any
tree."""

IMAGENET_C, CORRUPTED_IMAGES = LAYERED = ("ImageNetC", "CorruptedImages")
"""``ROOT/<corruption>/<severity>/<class>/*``. ``CorruptedImages`` has any classes, ``ImageNetC`` ImageNet's."""

TLLIB = ("Digits", "DomainNet", "ImageNetR", "Office31", "OfficeHome", "PACS", "VisDA2017")
"""Datasets of TLLib; dalib has some of them."""

HUGGING_FACE = "hf:"
"""Beginning of the name of a Hugging Face dataset."""

NAMES = (IMAGE_LIST, IMAGE_FOLDER, FOLDER, *LAYERED, *TLLIB, f"{HUGGING_FACE}NAME_OR_PATH")

ROOT = "."
"""The domain that is the dataset's root itself."""

SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".gif", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp", ".jp2")
"""Of images."""

LABEL_NAMES = ("label", "labels")


def open_domain(
    root: str | Path,
    dataset: str,
    codes: Sequence[str],
    split: str = "train",
    num_classes: int | None = None,
    allow_outside: bool = False,
    subset: str | None = None,
    *,
    classes: Sequence[str] | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    allow_download: bool = False,
    skip_corrupt: bool = False,
    workers: int = 0,
) -> Domain:
    """Open the domains of these codes as one; nothing is downloaded unless ``allow_download`` is given.

    The settings of :class:`~tllib_ancon.config.DataConfig` say what most arguments mean. A code may be a list, a folder
    (``.`` is the root) or a split, with the name of a configuration before it as ``clipart/train``. ``split`` is
    ``train`` or ``test`` if the dataset has two lists a domain. ``classes`` are names in the order of the labels; other
    folders are an error. A Hugging Face dataset is one of the hub, or a folder that ``save_to_disk`` wrote or that
    holds data files. Every image must exist, unless ``skip_corrupt`` decodes each once, in ``workers`` processes, and
    leaves out unreadable images.
    """
    if not codes:
        raise UserError(f"no domain given for dataset {dataset}; name one as `target`")
    if subset is not None and dataset not in LAYERED:
        raise UserError(f"`subset` is for {' and '.join(LAYERED)}, not for {dataset}")
    if dataset.startswith(HUGGING_FACE):
        name = dataset.removeprefix(HUGGING_FACE)
        if not os.path.isdir(name) and (Path(root) / name).is_dir():
            name = str(Path(root) / name)
        found = _open_hugging_face(name, codes, allow_download)
        domain = _of_hugging_face(found, f"{HUGGING_FACE}{name} {'+'.join(codes)}", classes, image_column, label_column)
    else:
        tree = Tree(root, allow_outside, skip_corrupt)
        openers: Mapping[str, Callable[[], Domain]] = {
            IMAGE_LIST: partial(_open_lists, tree, codes, num_classes),
            IMAGE_FOLDER: partial(_open_class_folders, tree, codes, classes),
            FOLDER: partial(_open_any, tree, codes, classes or numbered(num_classes or 0)),
            **dict.fromkeys(LAYERED, partial(_open_corrupted, tree, dataset, codes, subset)),
            **dict.fromkeys(TLLIB, partial(_open_toolkit_lists, tree, dataset, codes, split)),
        }
        if dataset not in openers:
            raise unknown_name("dataset", dataset, NAMES)
        domain = openers[dataset]()
    return without_unreadable(domain, workers) if skip_corrupt else require_files(domain)


def as_domain(
    images: Any,
    *,
    labels: ArrayLike | bool | None = None,
    classes: Sequence[str] | None = None,
    name: str | None = None,
    skip_corrupt: bool = False,
    workers: int = 0,
) -> Domain:
    """A domain of Python objects: a :class:`Domain`, or images as for :func:`tllib_ancon.adapt`. A folder may have
    class folders.

    The names of ``classes`` are in the order of the labels and of the model's outputs. Class folders and Hugging Face
    datasets bring names and labels. Otherwise there are none by default; given labels are named by numbers. ``labels``
    False reads a folder as images without labels, at any depth.
    """
    if isinstance(images, str | os.PathLike) and os.path.isfile(images):
        images = [images]
    if isinstance(images, Domain):
        domain = images
    elif isinstance(images, str | os.PathLike):
        tree = Tree(images, skip=skip_corrupt)
        below = tree.folders(tree.root)
        if below and labels is not False and tree.images(tree.root):
            raise UserError(
                f"{tree.root} holds images beside folders, {below[0]!r} first: expected images alone or a folder a "
                "class; `labels=False` reads all of them without labels"
            )
        opener = _open_class_folders if below and labels is not False else _open_any
        domain = opener(tree, [ROOT], classes)
        domain = without_unreadable(domain, workers) if skip_corrupt else require_files(domain)
    elif isinstance(images, list) and images and all(isinstance(path, str | os.PathLike) for path in images):
        domain = require_files(Domain.of_files(name or "given", list(map(os.fspath, images)), list(classes or ())))
    elif type(images).__module__.partition(".")[0] == "datasets":
        domain = _of_hugging_face(images, name or "the dataset", classes)
    else:
        kind = name or type(images).__name__
        domain = Domain(kind, Items(images, kind), list(classes or ()))
    domain = replace(domain, name=name or domain.name)
    if labels is None or isinstance(labels, bool):
        return domain.without_labels() if labels is False else domain
    given = np.asarray(labels)
    largest = int(given.max()) if given.size and given.dtype.kind in "iu" else 0
    return replace(domain, classes=list(classes or domain.classes or numbered(largest + 1)), labels=given)


def known_domains(root: str | Path, dataset: str) -> set[str]:
    """The domains that a dataset has, where its lists or its table in the toolkit name them; else an empty set."""
    if dataset == IMAGE_LIST:
        return {path.stem for path in (Path(root) / "image_list").glob("*.txt")} - {"classes"}
    if dataset not in TLLIB:
        return set()
    from tllib_ancon.toolkit.toolkit import find

    return set(find().dataset(dataset).lists)


def domains_in(tree: Tree, dataset: str) -> list[str]:
    """The domains that seem to lie in a root, of a dataset that is not TLLib's; one that is not there if none does."""
    if dataset == IMAGE_LIST:
        return sorted(known_domains(tree.root, dataset)) or [ROOT]
    if dataset in LAYERED:
        return tree.layers() or ["corruption/severity"]
    names = [] if dataset.startswith(HUGGING_FACE) or tree.images(tree.root) else tree.folders(tree.root)
    of_classes = dataset == IMAGE_FOLDER and any(tree.images(tree.root / name) for name in names)
    return [ROOT] if of_classes or not names else names


def missing_dataset(root: str | Path) -> UserError:
    """The error for a root without the name of its dataset: which one it looks like, and all names."""
    found = ""
    if any((Path(root) / "image_list").glob("*.txt")):
        found = IMAGE_LIST
    elif os.path.isdir(root):
        tree = Tree(root)
        found = FOLDER if tree.images(root) else IMAGE_FOLDER if tree.folders(root) else ""
    guess = f"{root} looks like {found}: pass `data` {found}. " if found else ""
    return UserError(f"`data` is missing: which dataset lies in {root}? {guess}Names: {', '.join(NAMES)}")


def default_resizing(dataset: str | None) -> str:
    """Default resizing of a dataset: TLLib's square for its lists and layouts. ``ImageFolder``, ``Folder``, ``hf:NAME``
    and Python objects (no name) keep the aspect ratio."""
    kept = not dataset or dataset in (IMAGE_FOLDER, FOLDER) or dataset.startswith(HUGGING_FACE)
    return KEEP_RATIO if kept else "default"


def require_files(domain: Domain) -> Domain:
    """This domain, if every image of it is a regular file; nothing is decoded."""
    bad = [path for path in domain.paths or () if not os.path.isfile(path)]
    if bad:
        kind = "no regular files" if os.path.exists(bad[0]) else "missing"
        raise UserError(
            f"domain {domain.name} is incomplete: {len(bad)} of {len(domain)} images are {kind}, {bad[0]} first; "
            "`skip_corrupt=True` leaves such images out"
        )
    return domain


def without_unreadable(domain: Domain, workers: int = 0) -> Domain:
    """The domain without unreadable images; ``skipped`` holds the reasons. ``workers`` processes decode every image
    once."""
    reasons = list(read_each(partial(_reason, domain), len(domain), workers))
    skipped = [reason for reason in reasons if reason]
    if len(skipped) == len(domain):
        raise UserError(f"domain {domain.name}: not one of its {len(domain)} images can be decoded; {skipped[0]}")
    readable = [index for index, reason in enumerate(reasons) if not reason]
    return replace(domain.subset(readable), skipped=[*domain.skipped, *skipped])


def _reason(domain: Domain, index: int) -> str:
    """Why an image cannot be decoded; empty where it can."""
    try:
        domain.images.image(int(domain.positions[index]))
    except UserError as error:
        return str(error)
    return ""


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


def _listed(images: Iterable[tuple[str, int | None]], root: str | Path) -> ImageList:
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
    paths, labels = _listed(images, tree.root)
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


def _open_any(tree: Tree, codes: Sequence[str], classes: Sequence[str] | None) -> Domain:
    """Every image below the folders of these domains, without labels."""
    return _of_folders(tree, codes, classes, ((None, tree.images_below(tree.domain(code))) for code in codes))


def _open_class_folders(tree: Tree, codes: Sequence[str], classes: Sequence[str] | None) -> Domain:
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


def _open_corrupted(tree: Tree, dataset: str, codes: Sequence[str], subset: str | None) -> Domain:
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
    for number, line in _lines(subset):
        name = Path(line)
        if len(name.parts) != 2 or ".." in name.parts or name.is_absolute():
            raise UserError(f"{subset}, line {number}: expected class/name of an image, got {line!r}")
        if not (folder / name).is_file():
            raise UserError(f"{subset}, line {number}: {folder / name} does not exist")
        yield name.parts[0], [tree.require(folder / name)]


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Number and text of every line that is not blank."""
    with reading(file, "UTF-8 text"), open(file, encoding="utf-8-sig", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, line.strip()


def read_class_names(file: Path) -> list[str]:
    """The names in a file of one a line, in the order of the labels."""
    classes = [line for _, line in _lines(file)]
    if len({*classes}) != len(classes) or not classes:
        raise UserError(f"{file}: expected one distinct class name a line, in the order of the labels")
    return classes


def read_image_list(
    list_file: Path, root: Path, num_classes: int | None = None, allow_outside: bool = False, first_label: int = 0
) -> ImageList:
    """Read an image list.

    The label is the last word of a line and the path is everything before it, so paths may hold spaces. Blank lines are
    skipped; Windows line ends, tabs and a byte-order mark are accepted. A list in which no line ends in an integer is a
    list of unlabelled images. Relative paths start from ``root``; ``first_label`` is the list's number of the first
    class, which becomes 0.
    """
    tree, base, line_of = Tree(root, allow_outside), os.path.normpath(root), f"{list_file}, line"

    def images() -> Iterator[tuple[str, int | None]]:
        labelled, unlabelled = False, ""
        for number, line in _lines(list_file):
            label: int | None
            try:
                path, end = line.rsplit(maxsplit=1)
                label = int(end)
            except ValueError:
                path, label = line, None
            if label is None:
                unlabelled = unlabelled or f"{line_of} {number}: no integer label at the end of {line!r}"
            elif not 0 <= label - first_label < (num_classes or 2**63):
                expected = f"at least {first_label}"
                if num_classes is not None:
                    expected += f" and below {first_label + num_classes}: {num_classes} classes"
                raise UserError(f"{line_of} {number}: label {label} is out of range; it must be {expected}")
            labelled = labelled or label is not None
            if unlabelled and labelled:
                raise UserError(f"{unlabelled} (other lines of the list have one)")
            full = os.path.normpath(os.path.join(base, path))
            if not tree.holds(full):
                raise UserError(
                    f"{line_of} {number}: {path!r} leads outside the dataset root; `allow_outside_root=True` accepts it"
                )
            yield full, None if label is None else label - first_label

    paths, labels = _listed(images(), base)
    if not paths:
        raise UserError(f"{list_file}: the list is empty; it must name at least one image")
    return paths, labels


def _open_lists(tree: Tree, codes: Sequence[str], num_classes: int | None) -> Domain:
    """``root/image_list/<domain>.txt``."""
    folder = tree.root / "image_list"
    class_file, files = folder / "classes.txt", [folder / f"{code}.txt" for code in codes]
    known = sorted(known_domains(tree.root, IMAGE_LIST))
    if not known:
        raise UserError(
            f"{tree.root}: no image_list/*.txt here; TLLib's layout is one `path label` a line in such a file. "
            f"Class folders are `data` {IMAGE_FOLDER}, images without labels {FOLDER}"
        )
    for code, file in zip(codes, files, strict=True):
        if not file.is_file():
            raise unknown_name(f"domain of {tree.root}:", code, known)
    order: dict[str, int] = {}
    if class_file.is_file():
        classes = read_class_names(class_file)
        order = {name: label for label, name in enumerate(classes)}
        if num_classes not in (None, len(classes)):
            raise UserError(f"`num_classes` {num_classes}, but {class_file} names {len(classes)} classes; leave it out")
    lists = [read_image_list(file, tree.root, len(order) or num_classes, tree.allow_outside) for file in files]
    for code, images in zip(codes, lists, strict=True) if order else ():
        require_same_order(class_folders(*images), order, code, str(class_file))
    return _joined(tree, codes, lists, list(order) or numbered(num_classes or _count_classes(class_file, files, lists)))


def _open_toolkit_lists(tree: Tree, dataset: str, codes: Sequence[str], split: str) -> Domain:
    """The lists of one of TLLib's datasets."""
    from tllib_ancon.toolkit.toolkit import find

    table, lists = find().dataset(dataset), []
    for code in codes:
        if code not in table.lists:
            raise unknown_name(f"domain of {dataset}:", code, table.lists)
        by_split = table.lists[code]
        base = tree.root / table.root_of.get(code, "")
        file = base / (by_split[split] if split in by_split else by_split["all"])
        if not file.is_file():
            missing = table.missing(tree.root, list(codes))
            hint = f"; missing folders: {', '.join(missing)}" if missing else ""
            raise UserError(f"{tree.root} does not hold {dataset}: {file.relative_to(tree.root)} not found{hint}")
        lists.append(read_image_list(file, base, len(table.classes), tree.allow_outside, table.first_label))
    return _joined(tree, codes, lists, list(table.classes))


def _joined(tree: Tree, codes: Sequence[str], lists: Sequence[ImageList], classes: Sequence[str]) -> Domain:
    """One domain of several lists; without labels if one of them has none."""
    paths, labels = lists[0]
    if len(lists) > 1:
        orders = [class_folders(*images) for images in lists]
        for code, order in zip(codes, orders, strict=True):
            require_same_order(orders[0], order, codes[0], code)
        known = [labels for _, labels in lists if labels is not None]
        labels = np.concatenate(known) if len(known) == len(lists) else None
    if len(lists) > 1 or Path(paths.root) != tree.root:
        paths = Paths(chain.from_iterable(paths for paths, _ in lists), os.path.normpath(tree.root))
    return Domain.of_files("+".join(codes), paths, classes, labels)


def _count_classes(class_file: Path, files: Sequence[Path], lists: Sequence[ImageList]) -> int:
    """One more than the largest label; more classes than images are taken for a slip of the pen."""
    advice = f"pass `num_classes`, or name the classes in {class_file}"
    pairs = zip(files, lists, strict=True)
    labelled = [(int(labels.max()), file) for file, (_, labels) in pairs if labels is not None]
    if not labelled:
        raise UserError(f"image_list/classes.txt is missing and the lists have no labels: {advice}")
    (largest, file), count = max(labelled), sum(len(paths) for paths, _ in lists)
    if largest >= count:
        raise UserError(f"{file}: label {largest}, but the lists have only {count} images; {advice}")
    return largest + 1


def _open_hugging_face(name: str, codes: Sequence[str], allow_download: bool) -> Any:
    """Splits of a dataset on disk, in the cache of the library ``datasets`` (the extra ``huggingface``) or its hub."""
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            f"datasets of Hugging Face need the library `datasets` ({one_line(error)}): pip install datasets"
        ) from error
    full, offline = HUGGING_FACE + name, datasets.config.HF_HUB_OFFLINE or not allow_download
    saved = any(Path(name, file).is_file() for file in ("state.json", "dataset_info.json", "dataset_dict.json"))
    hint = "" if allow_download or os.path.isdir(name) else "; `allow_download=True` asks the hub for it"
    parts = []
    for code in codes:
        configuration, _, split = code.rpartition("/")
        with reading(full, "a dataset", hint), patch.object(datasets.config, "HF_HUB_OFFLINE", offline):
            found: Any = (
                datasets.load_from_disk(name)
                if saved
                else datasets.load_dataset(name, configuration or None, trust_remote_code=False)
            )
        if hasattr(found, "keys"):
            split = next(iter(found)) if split == ROOT and len(found) == 1 else split
            if split not in found:
                raise unknown_name(f"split of {full}:", split, found)
            found = found[split]
        parts.append(found)
    if any(part.features != parts[0].features for part in parts):
        raise UserError(f"{full}: the splits {', '.join(codes)} have other columns or classes; name splits that fit")
    return datasets.concatenate_datasets(parts) if len(parts) > 1 else parts[0]


def _of_hugging_face(
    dataset: Any,
    name: str,
    classes: Sequence[str] | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
) -> Domain:
    if hasattr(dataset, "keys") and not hasattr(dataset, "features"):
        raise UserError(f"{name}: a dataset with splits; choose one of {', '.join(dataset.keys())}")
    if not hasattr(dataset, "__len__"):
        raise UserError(f"{name}: {type(dataset).__name__} has no length; load it without streaming")
    if not len(dataset):
        raise UserError(f"{name}: the dataset is empty; give one with images")
    column = _column(dataset, image_column, "Image", IMAGE_NAMES, "`image_column`", name)
    if column is None:
        raise UserError(f"{name}: no column of images among {', '.join(dataset.features)}; name it by `image_column`")
    images = Column(dataset, column, name)
    column = _column(dataset, label_column, "ClassLabel", LABEL_NAMES, "`label_column`", name)
    named = (list(classes or ()), None) if column is None else _labels(dataset, column, classes, name)
    return Domain(name, images, *named)


def _column(dataset: Any, given: str | None, kind: str, usual: Sequence[str], setting: str, name: str) -> str | None:
    """The given column, the only one of this kind of feature, or the one with a usual name."""
    if given is not None:
        if given not in dataset.features:
            raise unknown_name(f"column ({setting}) of {name}:", given, dataset.features)
        return given
    found = [column for column, feature in dataset.features.items() if type(feature).__name__ == kind]
    named = [column for column in usual if column in (found or dataset.features)]
    if not named and len(found) > 1:
        raise UserError(f"{name}: several columns could be meant, {', '.join(found)}; choose one by {setting}")
    return next(iter(named or found), None)


def _labels(
    dataset: Any, column: str, classes: Sequence[str] | None, name: str
) -> tuple[Sequence[str], NDArray[np.int64] | None]:
    """Names of the classes, and the labels unless some are missing, which datasets write as -1 or None."""
    values = np.asarray(dataset.with_format("numpy")[column][:])
    names = getattr(dataset.features[column], "names", None)
    if values.dtype.kind == "U":
        names, values = np.unique(values, return_inverse=True)
    if values.dtype.kind not in "iu" or values.min() < 0:
        return classes or names or (), None
    if names is None:  # numbers alone: they count the classes
        return classes or numbered(int(values.max()) + 1), values
    names = [str(label) for label in names]
    strange = [label for label in names if label not in (classes or names)]
    if strange:
        raise UserError(
            f"{name} has other classes, {strange[0]!r} first: {', '.join(names)} instead of {', '.join(classes or ())}"
        )
    classes = list(classes or names)
    return classes, np.array([classes.index(label) for label in names])[values]
