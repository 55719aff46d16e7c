"""Opening the domains of a dataset that lies on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tllib_ancon.data.class_folders import class_folders, require_named_order, require_same_order
from tllib_ancon.data.corrupted import LAYERED, open_corrupted
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.image_list import UNLABELLED, Sample, read_image_list
from tllib_ancon.errors import UserError, unknown_name

IMAGE_LIST = "ImageList"
"""Name of the generic dataset: ``ROOT/image_list/<domain>.txt``, and class names in ``image_list/classes.txt``."""


def open_domain(
    root: str | Path,
    dataset: str,
    codes: Sequence[str],
    split: str = "train",
    num_classes: int | None = None,
    allow_outside: bool = False,
    subset: str | None = None,
) -> Domain:
    """Open a domain of a dataset that lies on disk; nothing is downloaded.

    Args:
        root: the dataset's folder
        dataset: a name of the toolkit (``Office31``, ``OfficeHome``, ``VisDA2017``, ``DomainNet``, ...), or
            ``ImageList`` for any folder with ``image_list/<domain>.txt``; ``ImageNetC`` or ``CorruptedImages`` for
            folders of :mod:`tllib_ancon.data.corrupted`
        codes: the toolkit's domain codes (``A``, ``Ar``, ...), or names of lists; several are joined
        split: ``train`` or ``test``, where the dataset has two lists a domain
        num_classes: for ``ImageList`` without ``classes.txt``. Default: one more than the largest label
        allow_outside: accept images outside ``root``
        subset: list of the images to use, for ``ImageNetC`` and ``CorruptedImages``

    Raises:
        UserError: a missing root, folder, list or class file; an unknown dataset or domain; a faulty list; class
            orders that differ
    """
    root = Path(root)
    if not root.is_dir():
        raise UserError(f"dataset root {root} is not a folder; give the folder that holds the dataset")
    if not codes:
        raise UserError(f"no domain given for dataset {dataset}")
    if dataset in LAYERED:
        return open_corrupted(root, dataset, codes, subset, allow_outside)
    if subset is not None:
        raise UserError(f"--subset is for {' and '.join(LAYERED)}; {dataset} has image lists")
    if dataset == IMAGE_LIST:
        classes = _generic_classes(root, codes, num_classes, allow_outside)
        lists, first_label = [(root, _generic_list(root, code)) for code in codes], 0
    else:
        classes, lists, first_label = _toolkit_lists(root, dataset, codes, split)
    by_code = {
        code: read_image_list(list_file, base, len(classes), allow_outside, first_label)
        for code, (base, list_file) in zip(codes, lists, strict=True)
    }
    _require_one_order(by_code)
    if dataset == IMAGE_LIST:
        _require_listed_order(by_code, classes, root)
    return Domain("+".join(codes), [sample for samples in by_code.values() for sample in samples], classes)


def known_domains(root: str | Path, dataset: str) -> set[str]:
    """The domains that a dataset has, where its lists or its table in the toolkit name them; else an empty set."""
    if dataset == IMAGE_LIST:
        return {path.stem for path in (Path(root) / "image_list").glob("*.txt")} - {"classes"}
    from tllib_ancon import toolkit

    found = toolkit.find()
    return set(found.dataset(dataset).lists) if dataset in found.dataset_names() else set()


def _require_one_order(by_code: dict[str, list[Sample]]) -> None:
    first, *others = ((code, class_folders(samples)) for code, samples in by_code.items())
    for code, folders in others:
        require_same_order(first[1], folders, first[0], code)


def _require_listed_order(by_code: dict[str, list[Sample]], classes: list[str], root: Path) -> None:
    if classes != _numbered(len(classes)):
        for code, samples in by_code.items():
            require_named_order(class_folders(samples), classes, code, root / "image_list" / "classes.txt")


def _numbered(num_classes: int) -> list[str]:
    """Names of classes that have none."""
    return [str(label) for label in range(num_classes)]


def _generic_list(root: Path, code: str) -> Path:
    list_file = root / "image_list" / f"{code}.txt"
    if list_file.is_file():
        return list_file
    found = sorted(path.stem for path in (root / "image_list").glob("*.txt") if path.stem != "classes")
    if not found:
        raise UserError(f"{root}: no image_list/*.txt here; TLLib's layout is one `path label` a line in such a file")
    raise unknown_name(f"domain of {root}:", code, found)


def _generic_classes(root: Path, codes: Sequence[str], num_classes: int | None, allow_outside: bool) -> list[str]:
    class_file = root / "image_list" / "classes.txt"
    if num_classes is not None and num_classes < 1:
        raise UserError(f"--num-classes must be at least 1, got {num_classes}")
    if class_file.is_file():
        classes = _named_classes(class_file)
        if num_classes not in (None, len(classes)):
            raise UserError(f"--num-classes {num_classes}, but {class_file} names {len(classes)} classes; leave it out")
        return classes
    if num_classes is None:
        num_classes = _count_classes(root, codes, allow_outside)
    return _numbered(num_classes)


def _named_classes(class_file: Path) -> list[str]:
    try:
        lines = class_file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{class_file}: cannot be read as UTF-8 text ({error})") from error
    classes = [line.strip() for line in lines if line.strip()]
    if len(set(classes)) != len(classes) or not classes:
        raise UserError(f"{class_file}: expected one distinct class name a line, in the order of the labels")
    return classes


def _count_classes(root: Path, codes: Sequence[str], allow_outside: bool) -> int:
    """One more than the largest label; more classes than images are taken for a slip of the pen."""
    labels = [
        (sample.label, path)
        for path in (_generic_list(root, code) for code in codes)
        for sample in read_image_list(path, root, allow_outside=allow_outside)
    ]
    largest, path = max(labels)
    advice = f"pass --num-classes, or name the classes in {root / 'image_list' / 'classes.txt'}"
    if largest == UNLABELLED:
        raise UserError(f"image_list/classes.txt is missing and the lists have no labels: {advice}")
    if largest >= len(labels):
        raise UserError(f"{path}: label {largest}, but the lists have only {len(labels)} images; {advice}")
    return largest + 1


def _toolkit_lists(
    root: Path, dataset: str, codes: Sequence[str], split: str
) -> tuple[list[str], list[tuple[Path, Path]], int]:
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
        lists.append((base, list_file))
    return list(table.classes), lists, table.first_label
