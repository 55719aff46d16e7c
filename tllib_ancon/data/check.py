"""What the folder of a dataset has and lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tllib_ancon.data.domain import Domain, class_folders, require_same_order
from tllib_ancon.data.open import (
    HUGGING_FACE,
    IMAGE_FOLDER,
    IMAGE_LIST,
    LAYERED,
    NAMES,
    ROOT,
    TLLIB,
    Tree,
    known_domains,
    open_domain,
)
from tllib_ancon.errors import UserError, unknown_name

IMAGES = {
    "Office31": {"amazon": 2817, "dslr": 498, "webcam": 795},
    "OfficeHome": {"Art": 2427, "Clipart": 4365, "Product": 4439, "Real_World": 4357},
    "PACS": {"art_painting_all": 2048, "cartoon_all": 2344, "photo_all": 1670, "sketch_all": 3929},
    "VisDA2017": {"train": 152_397, "validation": 55_388},
}
"""How many images the papers of TLLib's datasets count in a domain, by the name of its list."""


@dataclass
class Part:
    """What was found of one domain; where a domain has two lists, of one of them."""

    domain: str
    place: str  # its list or folder, below the root
    expected: int | None = None  # images that the dataset's paper counts
    images: int | None = None  # that are listed; None where the domain cannot be opened
    labelled: bool = False


@dataclass
class Checked:
    """What was found of a dataset."""

    parts: list[Part]
    classes: Sequence[str] = ()  # in the order of the labels
    needed: Sequence[str] = ()  # files and folders of TLLib's layout, below the root
    problems: list[str] = field(default_factory=list)  # what is missing or wrong

    @property
    def complete(self) -> bool:
        return not self.problems


def check(
    root: str | Path, dataset: str, codes: Sequence[str] = (), *, decode: bool = True, workers: int = 0, **opening: Any
) -> Checked:
    """What the folder of a dataset has and lacks; nothing is changed.

    The domains of these codes, by default all, are opened as :func:`~tllib_ancon.data.open.open_domain` does, which
    ``opening`` is for, and each image is decoded in ``workers`` processes, unless ``decode`` is False. A domain of
    TLLib's datasets is compared with the number of images in :data:`IMAGES` and with TLLib's order of the classes,
    domains of other datasets with each other.

    Raises:
        UserError: a root that is no folder, an unknown dataset, or an unknown domain of a dataset of TLLib
    """
    checked = _parts(Tree(root), dataset, codes)
    for part in checked.parts:
        code, _, split = part.domain.partition(" ") if dataset in TLLIB else (part.domain, "", "")
        try:
            domain = open_domain(root, dataset, [code], split, skip_corrupt=decode, workers=workers, **opening)
            part.images, part.labelled = len(domain) + len(domain.skipped), domain.labels is not None
            checked.classes = checked.classes or domain.classes
            checked.problems += _problems(domain, dataset, part.expected)
        except UserError as error:
            checked.problems.append(f"{part.domain}: {error}")
    if dataset not in TLLIB and checked.complete:
        try:
            open_domain(root, dataset, [part.domain for part in checked.parts], **opening)
        except UserError as error:
            checked.problems.append(str(error))
    return checked


def _problems(domain: Domain, dataset: str, expected: int | None) -> Iterator[str]:
    count, left_out = len(domain) + len(domain.skipped), domain.skipped
    if left_out:
        yield f"{domain.name}: {len(left_out)} of {count} images cannot be read, first {left_out[0]}"
    if expected not in (None, count):
        yield f"{domain.name}: {count} images are listed, and {dataset} has {expected}"
    if dataset in TLLIB:
        order = {name: label for label, name in enumerate(domain.classes)}
        require_same_order(class_folders(domain.paths, domain.labels), order, domain.name, f"TLLib's {dataset}")


def _parts(tree: Tree, dataset: str, codes: Sequence[str]) -> Checked:
    """What has to be looked at, nothing of it opened yet."""
    if dataset not in NAMES and not dataset.startswith(HUGGING_FACE):
        raise unknown_name("dataset", dataset, NAMES)
    if dataset not in TLLIB:
        where = "image_list/{}.txt" if dataset == IMAGE_LIST else "{}"
        return Checked([Part(code, where.format(code)) for code in codes or _domains(tree, dataset)])
    from tllib_ancon.toolkit.toolkit import find

    table = find().dataset(dataset)
    parts: dict[Path, Part] = {}
    for code in codes or sorted(table.lists):
        if code not in table.lists:
            raise unknown_name(f"domain of {dataset}:", code, table.lists)
        for split, file in table.lists[code].items():
            place, expected = Path(table.root_of.get(code, ""), file), IMAGES.get(dataset, {}).get(Path(file).stem)
            name = f"{code} {split}".removesuffix(" all")
            parts.setdefault(place, Part(name, str(place), expected))  # VisDA-2017's domains have two names
    folders = [folder for part in parts.values() for folder in table.folders[part.domain.partition(" ")[0]]]
    return Checked(list(parts.values()), needed=[*map(str, parts), *dict.fromkeys(folders)])


def _domains(tree: Tree, dataset: str) -> list[str]:
    """The domains that seem to lie in a root; one that is not there where none does."""
    if dataset == IMAGE_LIST:
        return sorted(known_domains(tree.root, dataset)) or [ROOT]
    if dataset in LAYERED:
        return tree.layers() or ["corruption/severity"]
    if dataset.startswith(HUGGING_FACE):
        return [ROOT]
    names = tree.folders(tree.root)
    of_classes = dataset == IMAGE_FOLDER and any(tree.images(tree.root / name) for name in names)
    return [ROOT] if of_classes or tree.images(tree.root) or not names else names
