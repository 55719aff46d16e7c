"""Images in lists: a file of ``path label`` lines for each domain, of any dataset or of TLLib's."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tllib_ancon.data.domain import Domain, class_folders, numbered, require_same_order
from tllib_ancon.data.folders import FOLDER, IMAGE_FOLDER, Tree, lines_of
from tllib_ancon.runtime.errors import UserError, unknown_name

IMAGE_LIST = "ImageList"
"""``ROOT/image_list/<domain>.txt``, with class names in ``image_list/classes.txt``."""

ImageList = tuple[list[str], NDArray[np.int64] | None]
"""N paths, and (N,) labels unless there are none."""


@dataclass(frozen=True)
class Table:
    """Where TLLib lists the images of a dataset. ``tllib.json`` has its tables, so that they need no toolkit."""

    classes: list[str]  # in the order of the labels
    # Code of a domain -> split -> path of the image list, relative to the domain's root. The splits are ``train`` and
    # ``test``, or ``all`` for one list a domain.
    lists: dict[str, dict[str, str]]
    folders: dict[str, list[str]]  # code -> what TLLib would download where it is not in the dataset's root
    root_of: dict[str, str] = field(default_factory=dict)  # code -> its root below the dataset's, where that is another
    first_label: int = 0  # the number of the first class in the lists
    images: dict[str, int] = field(default_factory=dict)  # name of a list -> images that the dataset's paper counts


TLLIB = {name: Table(**entry) for name, entry in json.loads(Path(__file__).with_name("tllib.json").read_text()).items()}


def read_class_names(file: Path) -> list[str]:
    classes = [line for _, line in lines_of(file)]
    if len({*classes}) != len(classes) or not classes:
        raise UserError(f"{file}: expected one distinct class name a line, in the order of the labels")
    return classes


def read_image_list(
    list_file: Path, root: Path, num_classes: int | None = None, allow_outside: bool = False, first_label: int = 0
) -> ImageList:
    """Read lines of a path and a label, the last word; a list without integers is one of unlabelled images. Windows
    line ends, tabs and a byte-order mark are accepted. Relative paths start from ``root``; ``first_label`` becomes 0.
    """
    tree, base = Tree(root, allow_outside), os.path.normpath(root)
    paths: list[str] = []
    labels: list[int] = []
    unlabelled = ""
    for number, line in lines_of(list_file):
        where = f"{list_file}, line {number}"
        try:
            path, end = line.rsplit(maxsplit=1)
            label = int(end) - first_label
        except ValueError:
            path = line
            unlabelled = unlabelled or f"{where}: no integer label at the end of {line!r}"
        else:
            if not 0 <= label < (num_classes or 2**63):
                expected = f"at least {first_label}"
                if num_classes is not None:
                    expected += f" and below {first_label + num_classes}: {num_classes} classes"
                raise UserError(f"{where}: label {end} is out of range; it must be {expected}")
            labels.append(label)
        if unlabelled and labels:
            raise UserError(f"{unlabelled} (other lines of the list have one); add it")
        paths.append(os.path.normpath(os.path.join(base, path)))
        if not tree.holds(paths[-1]):
            raise UserError(
                f"{where}: {path!r} leads outside the dataset root; pass `allow_outside_root=True` to accept it"
            )
    if not paths:
        raise UserError(f"{list_file}: the list is empty; it must name at least one image")
    return paths, np.array(labels) if labels else None


def known_domains(root: str | Path, dataset: str) -> set[str]:
    """The domains that a dataset has, where its lists or TLLib's table name them; else an empty set."""
    if dataset == IMAGE_LIST:
        return {path.stem for path in (Path(root) / "image_list").glob("*.txt")} - {"classes"}
    return set(TLLIB[dataset].lists) if dataset in TLLIB else set()


def open_lists(tree: Tree, codes: Sequence[str], num_classes: int | None) -> Domain:
    folder = tree.root / "image_list"
    class_file, files = folder / "classes.txt", [folder / f"{code}.txt" for code in codes]
    known = sorted(known_domains(tree.root, IMAGE_LIST))
    if not known:
        raise UserError(
            f"{tree.root}: no image_list/*.txt here; TLLib's layout is one `path label` a line in such a file. "
            f"For class folders pass `data={IMAGE_FOLDER}`, for images without labels `data={FOLDER}`"
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


def open_toolkit_lists(tree: Tree, dataset: str, codes: Sequence[str], split: str) -> Domain:
    table, lists = TLLIB[dataset], []
    for code in codes:
        if code not in table.lists:
            raise unknown_name(f"domain of {dataset}:", code, table.lists)
        by_split = table.lists[code]
        base = tree.root / table.root_of.get(code, "")
        file = base / (by_split.get(split) or by_split["all"])
        if not file.is_file():
            needed = dict.fromkeys(folder for name in codes for folder in table.folders[name])
            missing = [folder for folder in needed if not (tree.root / folder).exists()]
            hint = f"; missing folders: {', '.join(missing)}" if missing else ""
            raise UserError(
                f"{tree.root} does not hold {dataset}: {file.relative_to(tree.root)} not found{hint}. Give the folder "
                "that holds it"
            )
        lists.append(read_image_list(file, base, len(table.classes), tree.allow_outside, table.first_label))
    return _joined(tree, codes, lists, table.classes)


def _joined(tree: Tree, codes: Sequence[str], lists: Sequence[ImageList], classes: Sequence[str]) -> Domain:
    orders = [class_folders(*images) for images in lists] if len(lists) > 1 else []
    for code, order in zip(codes, orders, strict=False):
        require_same_order(orders[0], order, codes[0], code)
    paths = [path for paths, _ in lists for path in paths]
    known = [labels for _, labels in lists if labels is not None]
    labels = np.concatenate(known) if len(known) == len(lists) else None
    return Domain.of_files("+".join(codes), paths, classes, labels, os.path.normpath(tree.root))


def _count_classes(class_file: Path, files: Sequence[Path], lists: Sequence[ImageList]) -> int:
    """One more than the largest label. More classes than images are an error."""
    advice = f"pass `num_classes`, or name the classes in {class_file}"
    pairs = zip(files, lists, strict=True)
    labelled = [(int(labels.max()), file) for file, (_, labels) in pairs if labels is not None]
    if not labelled:
        raise UserError(f"image_list/classes.txt is missing and the lists have no labels: {advice}")
    (largest, file), count = max(labelled), sum(len(paths) for paths, _ in lists)
    if largest >= count:
        raise UserError(f"{file}: label {largest}, but the lists have only {count} images; {advice}")
    return largest + 1
