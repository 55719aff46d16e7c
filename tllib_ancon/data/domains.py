"""Opening the domains of a dataset that lies on disk, or that a Python program holds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tllib_ancon.data.class_folders import class_folders, require_named_order, require_same_order
from tllib_ancon.data.corrupted import LAYERED, open_corrupted
from tllib_ancon.data.domain import Domain, numbered
from tllib_ancon.data.hugging_face import HUGGING_FACE, from_hugging_face, open_hugging_face
from tllib_ancon.data.image_folder import (
    FOLDER,
    IMAGE_FOLDER,
    ROOT,
    open_folder,
    open_image_folder,
    pictures_in,
    subfolders,
)
from tllib_ancon.data.image_list import ImageList, read_image_list
from tllib_ancon.data.paths import Paths
from tllib_ancon.data.pictures import DatasetPictures, FilePictures
from tllib_ancon.data.unreadable import require_files, without_unreadable
from tllib_ancon.errors import UserError, unknown_name
from tllib_ancon.given_paths import dataset_root

IMAGE_LIST = "ImageList"
"""Name of the generic dataset: ``ROOT/image_list/<domain>.txt``, and class names in ``image_list/classes.txt``."""

TLLIB = ("Digits", "DomainNet", "ImageNetR", "Office31", "OfficeHome", "PACS", "VisDA2017")
"""Datasets of TLLib; dalib has some of them."""

NAMES = (IMAGE_LIST, IMAGE_FOLDER, FOLDER, *LAYERED, *TLLIB, f"{HUGGING_FACE}NAME_OR_PATH")


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
    """Open a domain of a dataset that lies on disk; nothing is downloaded unless ``allow_download`` is given.

    EXIF orientation is applied nowhere: TLLib and torchvision ignore it, and a source model was trained without it.

    Args:
        root: the dataset's folder; a Hugging Face dataset that is a path may be relative to it
        dataset: a name of the toolkit (``Office31``, ``OfficeHome``, ``VisDA2017``, ``DomainNet``, ...), or
            ``ImageList`` for any folder with ``image_list/<domain>.txt``; ``ImageFolder`` for ``root/domain/class/*``;
            ``Folder`` for any tree of pictures; ``ImageNetC`` or ``CorruptedImages`` for folders of
            :mod:`tllib_ancon.data.corrupted`; ``hf:NAME_OR_PATH`` for :mod:`tllib_ancon.data.hugging_face`
        codes: the toolkit's domain codes (``A``, ``Ar``, ...), or names of lists, of folders (``.`` is the root), of
            splits; several are joined
        split: ``train`` or ``test``, where the dataset has two lists a domain
        num_classes: for ``ImageList`` without ``classes.txt``. Default: one more than the largest label
        allow_outside: accept images outside ``root``
        subset: list of the images to use, for ``ImageNetC`` and ``CorruptedImages``
        classes: names of the classes in the order of the labels, e.g. those of the source model, for ``ImageFolder``,
            ``Folder`` and ``hf:``; folders of other names are refused
        image_column, label_column, allow_download: for ``hf:``
        skip_corrupt: decode every image once and leave out those that cannot be
        workers: processes that do it

    Raises:
        UserError: a missing root, folder, list or class file; an unknown dataset or domain; a faulty list; class
            orders that differ; without ``skip_corrupt`` an image that is missing
    """
    if not codes:
        raise UserError(f"no domain given for dataset {dataset}")
    if num_classes is not None and num_classes < 1:
        raise UserError(f"`num_classes` must be at least 1, got {num_classes}")
    if subset is not None and dataset not in LAYERED:
        raise UserError(f"`subset` is for {' and '.join(LAYERED)}, not for {dataset}")
    if dataset.startswith(HUGGING_FACE):
        name = _path_or_name(Path(root), dataset.removeprefix(HUGGING_FACE))
        domain = open_hugging_face(name, codes, classes, image_column, label_column, allow_download)
    else:
        domain = _open_folder(dataset_root(root), dataset, codes, split, num_classes, allow_outside, subset, classes)
    return without_unreadable(domain, workers) if skip_corrupt else require_files(domain)


def as_domain(
    images: Any,
    *,
    labels: ArrayLike | bool | None = None,
    classes: Sequence[str] | None = None,
    name: str | None = None,
) -> Domain:
    """A domain of what a Python program holds.

    Args:
        images: a folder, of pictures or of a folder a class; a :class:`Domain`; a Hugging Face dataset; or any
            map-style dataset (:class:`~tllib_ancon.data.pictures.DatasetPictures`), whose own labels are not read
        labels: (N,) of the images, for the record alone. False reads a folder as pictures without labels, at any depth.
            Default: those that folders or a Hugging Face dataset name
        classes: names of the classes, in the order of the labels and of the model's outputs. Default: the names that
            folders or a Hugging Face dataset have; otherwise not known, or numbers where there are labels
        name: of the domain, in messages. Default: that of the folder or of the dataset's type

    Raises:
        UserError: no folder; a folder without pictures, or with pictures beside folders of pictures; a dataset without
            length or whose items are no images; labels of another number
    """
    domain = _of_python(images, classes, labels, name)
    domain = replace(domain, name=name or domain.name)
    given = None if labels is None or isinstance(labels, bool) else np.asarray(labels)
    if labels is False:
        domain = domain.without_labels()
    elif given is not None:
        largest = int(given.max()) if given.size and given.dtype.kind in "iu" else 0
        named = classes or domain.classes or numbered(largest + 1)
        domain = replace(domain, classes=list(named), labels=given)
    return domain


def known_domains(root: str | Path, dataset: str) -> set[str]:
    """The domains that a dataset has, where its lists or its table in the toolkit name them; else an empty set."""
    if dataset == IMAGE_LIST:
        return {path.stem for path in (Path(root) / "image_list").glob("*.txt")} - {"classes"}
    from tllib_ancon import toolkit

    found = toolkit.find()
    return set(found.dataset(dataset).lists) if dataset in found.dataset_names() else set()


def missing_dataset(root: str | Path) -> UserError:
    """The error for a root without the name of its dataset: which one it looks like, and all names."""
    found = _looks_like(Path(root))
    guess = f"{root} looks like {found}: pass `data` {found}. " if found else ""
    return UserError(f"`data` is missing: which dataset lies in {root}? {guess}Names: {', '.join(NAMES)}")


def _looks_like(root: Path) -> str | None:
    if any((root / "image_list").glob("*.txt")):
        return IMAGE_LIST
    if not root.is_dir():
        return None
    if pictures_in(root):
        return FOLDER
    return IMAGE_FOLDER if subfolders(root) else None


def _path_or_name(root: Path, name: str) -> str:
    return str(root / name) if not os.path.isdir(name) and (root / name).is_dir() else name


def _open_folder(
    root: Path,
    dataset: str,
    codes: Sequence[str],
    split: str,
    num_classes: int | None,
    allow_outside: bool,
    subset: str | None,
    classes: Sequence[str] | None,
) -> Domain:
    if dataset in LAYERED:
        return open_corrupted(root, dataset, codes, subset, allow_outside)
    if dataset == IMAGE_FOLDER:
        return open_image_folder(root, codes, classes, allow_outside)
    if dataset == FOLDER:
        return open_folder(root, codes, classes or numbered(num_classes or 0), allow_outside)
    if dataset == IMAGE_LIST:
        return _open_lists(root, codes, num_classes, allow_outside)
    if dataset not in TLLIB:
        raise unknown_name("dataset", dataset, NAMES)
    return _open_toolkit_lists(root, dataset, codes, split, allow_outside)


def _open_lists(root: Path, codes: Sequence[str], num_classes: int | None, allow_outside: bool) -> Domain:
    class_file = root / "image_list" / "classes.txt"
    files = [_generic_list(root, code) for code in codes]
    classes = _named_classes(class_file, num_classes) if class_file.is_file() else None
    if classes is None and num_classes is not None:
        classes = numbered(num_classes)
    bound = None if classes is None else len(classes)
    lists = [read_image_list(file, root, bound, allow_outside) for file in files]
    if classes is None:
        classes = numbered(_count_classes(root, files, lists))
    _require_one_order(codes, lists)
    if class_file.is_file():
        for code, images in zip(codes, lists, strict=True):
            require_named_order(class_folders(*images), classes, code, class_file)
    return _joined(root, codes, lists, classes)


def _open_toolkit_lists(root: Path, dataset: str, codes: Sequence[str], split: str, allow_outside: bool) -> Domain:
    from tllib_ancon import toolkit

    table = toolkit.find().dataset(dataset)
    lists = []
    for code in codes:
        if code not in table.lists:
            raise unknown_name(f"domain of {dataset}:", code, table.lists)
        by_split = table.lists[code]
        base = root / table.root_of.get(code, "")
        list_file = base / (by_split[split] if split in by_split else by_split["all"])
        if not list_file.is_file():
            missing = table.missing(root, list(codes))
            hint = f"; missing folders: {', '.join(missing)}" if missing else ""
            raise UserError(f"{root} does not hold {dataset}: {list_file.relative_to(root)} not found{hint}")
        lists.append(read_image_list(list_file, base, len(table.classes), allow_outside, table.first_label))
    _require_one_order(codes, lists)
    return _joined(root, codes, lists, list(table.classes))


def _joined(root: Path, codes: Sequence[str], lists: Sequence[ImageList], classes: Sequence[str]) -> Domain:
    """One domain of several lists; without labels if one of them has none."""
    paths, labels = lists[0]
    if len(lists) > 1 or Path(paths.root) != root:
        paths = Paths((path for images in lists for path in images.paths), os.path.normpath(root))
    if len(lists) > 1:
        labels = _concatenated([images.labels for images in lists])
    return Domain("+".join(codes), FilePictures(paths), classes, labels)


def _concatenated(labels: Sequence[NDArray[np.int64] | None]) -> NDArray[np.int64] | None:
    known = [part for part in labels if part is not None]
    return np.concatenate(known) if len(known) == len(labels) else None


def _require_one_order(codes: Sequence[str], lists: Sequence[ImageList]) -> None:
    if len(lists) == 1:
        return
    first, *others = ((code, class_folders(*images)) for code, images in zip(codes, lists, strict=True))
    for code, folders in others:
        require_same_order(first[1], folders, first[0], code)


def _generic_list(root: Path, code: str) -> Path:
    list_file = root / "image_list" / f"{code}.txt"
    if list_file.is_file():
        return list_file
    found = sorted(path.stem for path in (root / "image_list").glob("*.txt") if path.stem != "classes")
    if not found:
        raise UserError(
            f"{root}: no image_list/*.txt here; TLLib's layout is one `path label` a line in such a file. "
            f"Class folders are `data` {IMAGE_FOLDER}, pictures without labels {FOLDER}"
        )
    raise unknown_name(f"domain of {root}:", code, found)


def _named_classes(class_file: Path, num_classes: int | None) -> list[str]:
    try:
        lines = class_file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{class_file}: cannot be read as UTF-8 text ({error})") from error
    classes = [line.strip() for line in lines if line.strip()]
    if len(set(classes)) != len(classes) or not classes:
        raise UserError(f"{class_file}: expected one distinct class name a line, in the order of the labels")
    if num_classes not in (None, len(classes)):
        raise UserError(f"`num_classes` {num_classes}, but {class_file} names {len(classes)} classes; leave it out")
    return classes


def _count_classes(root: Path, files: Sequence[Path], lists: Sequence[ImageList]) -> int:
    """One more than the largest label; more classes than images are taken for a slip of the pen."""
    advice = f"pass `num_classes`, or name the classes in {root / 'image_list' / 'classes.txt'}"
    labelled = [
        (int(images.labels.max()), file) for file, images in zip(files, lists, strict=True) if images.labels is not None
    ]
    if not labelled:
        raise UserError(f"image_list/classes.txt is missing and the lists have no labels: {advice}")
    largest, file = max(labelled)
    count = sum(len(images.paths) for images in lists)
    if largest >= count:
        raise UserError(f"{file}: label {largest}, but the lists have only {count} images; {advice}")
    return largest + 1


def _of_python(images: Any, classes: Sequence[str] | None, labels: Any, name: str | None) -> Domain:
    if isinstance(images, Domain):
        return images
    if isinstance(images, str | os.PathLike):
        return _of_folder(dataset_root(os.fspath(images)), classes, labels is False)
    if type(images).__module__.partition(".")[0] == "datasets":
        return from_hugging_face(images, name or "the dataset", classes)
    name = name or type(images).__name__
    return Domain(name, DatasetPictures(images, name), list(classes or ()))


def _of_folder(folder: Path, classes: Sequence[str] | None, any_depth: bool) -> Domain:
    here, below = pictures_in(folder), subfolders(folder)
    if any_depth or not below:
        return require_files(open_folder(folder, [ROOT], classes))
    if here:
        raise UserError(
            f"{folder} holds pictures beside folders, {below[0]!r} first: expected pictures alone or a folder a class; "
            "`labels=False` reads all of them without labels"
        )
    return require_files(open_image_folder(folder, [ROOT], classes))
