"""ImageNetC and CorruptedImages: ``ROOT/<corruption>/<severity>/<class>/*``, the layout of ImageNet-C."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from tllib_ancon.data.domain import Domain
from tllib_ancon.data.folders import Tree, labelled_domain, lines_of
from tllib_ancon.data.layout import Layout, Opening, layout
from tllib_ancon.runtime.errors import UserError


@layout
class CorruptedImages(Layout):
    """Any classes."""

    name = "CorruptedImages"
    help = "corruption/severity/class/*"
    settings = ("subset",)

    def open(self, opening: Opening) -> Domain:
        tree = opening.tree
        folders = [_severity_folder(tree, code) for code in opening.codes]
        names = set(chain.from_iterable(map(tree.folders, folders)))
        classes = self.classes_of(tree, names)
        missing = sorted(set(classes) - names)
        if missing and opening.subset is None:
            raise UserError(
                f"{tree.root} is incomplete: {len(missing)} of {len(classes)} class folders are missing, {missing[0]} "
                "first; name the images you have in a file and pass it as `subset`"
            )
        label_of = {name: label for label, name in enumerate(classes)}
        images: list[tuple[int, Iterable[str]]] = []
        for folder in folders:
            if opening.subset is None:
                listed: Iterable[tuple[str, Iterable[str]]] = _images_by_class(tree, folder)
            else:
                listed = _images_of_subset(tree, folder, Path(opening.subset))
            images.extend((label_of[name], paths) for name, paths in listed)
        return labelled_domain(tree, opening.codes, classes, images)

    def classes_of(self, tree: Tree, names: set[str]) -> Sequence[str]:
        """The classes in the order of the labels, from the names of the folders."""
        return sorted(names)

    def domains(self, tree: Tree) -> Sequence[str]:
        return _severities(tree) or ["corruption/severity"]


@layout
class ImageNetC(CorruptedImages):
    """ImageNet's classes, in the order of ImageNet classifiers."""

    name = "ImageNetC"
    help = "the same with ImageNet's WordNet ids as classes"

    def classes_of(self, tree: Tree, names: set[str]) -> Sequence[str]:
        from timm.data.imagenet_info import ImageNetInfo  # timm starts slowly, and each spawned worker reads this file

        imagenet: Any = ImageNetInfo("imagenet-1k")
        classes = sorted(imagenet.label_names())
        strange = sorted(names - set(classes))
        if strange:
            raise UserError(
                f"{tree.root}: {strange[0]} is no WordNet id of ImageNet's 1000 classes; for other classes pass `data` "
                f"{CorruptedImages.name}"
            )
        return classes


def _severities(tree: Tree) -> list[str]:
    """Each severity of each corruption, such as ``frost/5``."""
    folders = [path for path in tree.root.glob("*/[1-5]") if path.is_dir()]
    return sorted(path.relative_to(tree.root).as_posix() for path in folders)


def _severity_folder(tree: Tree, code: str) -> Path:
    severities = _severities(tree)
    if severities or (tree.root / code).is_dir():
        return tree.domain(code, severities)
    raise UserError(
        f"{tree.root} does not hold {code}; the layout of corrupted images is corruption/severity/class/*. "
        "Name a domain that is there"
    )


def _images_by_class(tree: Tree, folder: Path) -> Iterator[tuple[str, list[str]]]:
    for name in tree.folders(folder):
        yield name, tree.images(folder / name)


def _images_of_subset(tree: Tree, folder: Path, subset: Path) -> Iterator[tuple[str, list[str]]]:
    """The images that a file lists, which are the same of every corruption."""
    for number, line in lines_of(subset):
        name = Path(line)
        if len(name.parts) != 2 or ".." in name.parts or name.is_absolute():
            raise UserError(f"{subset}, line {number}: expected class/name of an image, got {line!r}")
        if not (folder / name).is_file():
            raise UserError(f"{subset}, line {number}: {folder / name} does not exist; remove the line")
        yield name.parts[0], [tree.require(folder / name)]
