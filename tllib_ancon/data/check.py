"""What the folder of a dataset has and lacks."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tllib_ancon.data.domain import require_same_order
from tllib_ancon.data.folders import Tree
from tllib_ancon.data.hugging_face import HUGGING_FACE
from tllib_ancon.data.lists import IMAGE_LIST, TLLIB
from tllib_ancon.data.open import NAMES, domains_in, open_domain
from tllib_ancon.runtime.errors import UserError, unknown_name


@dataclass
class Part:
    domain: str
    place: str  # the list or folder, below the root
    expected: int | None = None  # images that the dataset's paper counts
    images: int | None = None  # that are listed; None where the domain cannot be opened
    labelled: bool = False


@dataclass
class Checked:
    parts: list[Part]
    classes: Sequence[str] = ()  # in the order of the labels
    needed: Sequence[str] = ()  # files and folders of TLLib's layout, below the root
    problems: list[str] = field(default_factory=list)  # what is missing or wrong


def check(root: str | Path, dataset: str, codes: Sequence[str] = (), **opening: Any) -> Checked:
    """What the folder of a dataset has and lacks, of these domains or of all. Each is opened as
    :func:`~tllib_ancon.data.open.open_domain` does, which ``opening`` is for. Images and class order of TLLib's domains
    are compared with its tables, those of others with each other."""
    checked = _parts(Tree(root), dataset, codes)
    for part in checked.parts:
        code, _, split = part.domain.partition(" ") if dataset in TLLIB else (part.domain, "", "")
        try:
            domain = open_domain(root, dataset, [code], split, **opening)
            part.images, part.labelled = len(domain) + len(domain.skipped), domain.labels is not None
            checked.classes = checked.classes or domain.classes
            if domain.skipped:
                checked.problems.append(f"{code}: {len(domain.skipped)} images cannot be read; {domain.skipped[0]}")
            if part.expected not in (None, part.images):
                checked.problems.append(f"{code}: {part.images} images are listed, and {dataset} has {part.expected}")
            if dataset in TLLIB:
                order = {name: label for label, name in enumerate(domain.classes)}
                require_same_order(domain.class_folders, order, code, f"TLLib's {dataset}")
        except UserError as error:
            checked.problems.append(f"{part.domain}: {error}")
    if dataset not in TLLIB and not checked.problems:
        try:
            open_domain(root, dataset, [part.domain for part in checked.parts], **{**opening, "skip_corrupt": False})
        except UserError as error:
            checked.problems.append(str(error))
    return checked


def _parts(tree: Tree, dataset: str, codes: Sequence[str]) -> Checked:
    if dataset not in NAMES and not dataset.startswith(HUGGING_FACE):
        raise unknown_name("dataset", dataset, NAMES)
    if dataset not in TLLIB:
        where = "image_list/{}.txt" if dataset == IMAGE_LIST else "{}"
        return Checked([Part(code, where.format(code)) for code in codes or domains_in(tree, dataset)])
    table = TLLIB[dataset]
    codes = codes or sorted(table.lists)
    parts: dict[str, Part] = {}
    for code in codes:
        if code not in table.lists:
            raise unknown_name(f"domain of {dataset}:", code, table.lists)
        for split, file in table.lists[code].items():
            place, expected = str(Path(table.root_of.get(code, ""), file)), table.images.get(Path(file).stem)
            name = f"{code} {split}".removesuffix(" all")
            parts.setdefault(place, Part(name, place, expected))  # VisDA-2017's domains have two names
    folders = [folder for code in codes for folder in table.folders[code]]
    return Checked(list(parts.values()), needed=[*parts, *dict.fromkeys(folders)])
