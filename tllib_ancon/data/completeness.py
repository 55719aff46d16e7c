"""What the folder of a dataset has and lacks."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tllib_ancon.data.domain import Domain, require_same_order
from tllib_ancon.data.folders import Tree
from tllib_ancon.data.layout import Part
from tllib_ancon.data.layouts import layout_of
from tllib_ancon.data.open import open_domain
from tllib_ancon.runtime.errors import UserError


@dataclass
class _DatasetCheck:
    parts: list[Part]
    classes: Sequence[str] = ()  # in the order of the labels
    needed: Sequence[str] = ()  # files and folders of TLLib's layout, below the root
    problems: list[str] = field(default_factory=list)  # what is missing or wrong


def check_dataset(root: str | Path, dataset: str, codes: Sequence[str] = (), **opening: Any) -> _DatasetCheck:
    """What the folder of a dataset has and lacks, of these domains or of all. Each is opened as
    :func:`~tllib_ancon.data.open.open_domain` does, which ``opening`` is for. Images and class order of TLLib's domains
    are compared with its tables, those of others with each other."""
    layout = layout_of(dataset)
    checked = _DatasetCheck(layout.parts(Tree(root), codes), needed=layout.needed(codes))
    for part in checked.parts:
        code, _, split = part.domain.partition(" ")
        if not layout.classes:  # domains of a user, whose names may have spaces
            code = part.domain
            split = ""
        try:
            domain = open_domain(root, dataset, [code], split, **opening)
            part.images = len(domain) + len(domain.skipped)
            part.labelled = domain.labels is not None
            checked.classes = checked.classes or domain.classes
            checked.problems.extend(_problems(part, domain, code, dataset))
            if layout.classes:
                order = {name: label for label, name in enumerate(domain.classes)}
                require_same_order(domain.class_folders, order, code, f"TLLib's {layout.name}")
        except UserError as error:
            checked.problems.append(f"{part.domain}: {error}")
    if not layout.classes and not checked.problems:
        try:
            open_domain(root, dataset, [part.domain for part in checked.parts], **{**opening, "skip_corrupt": False})
        except UserError as error:
            checked.problems.append(str(error))
    return checked


def _problems(part: Part, domain: Domain, code: str, dataset: str) -> list[str]:
    """What is wrong with the number of images of a domain that can be opened."""
    problems = []
    if domain.skipped:
        problems.append(f"{code}: {len(domain.skipped)} images cannot be read; {domain.skipped[0]}")
    if part.expected not in (None, part.images):
        problems.append(f"{code}: {part.images} images are listed, and {dataset} has {part.expected}")
    return problems
