"""ImageNetC and CorruptedImages: ``ROOT/<corruption>/<severity>/<class>/*``, the layout of ImageNet-C."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from tllib_ancon.data.folders import Tree, labelled_domain
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.layout import Layout, Opening, layout
from tllib_ancon.runtime.errors import BadImages, named


@layout
class CorruptedImages(Layout):
    """Any classes."""

    name = "CorruptedImages"
    help = "corruption/severity/class/*"

    def open(self, opening: Opening) -> ImageSource:
        tree = opening.tree
        folders = [tree.domain(code, _severities(tree)) for code in opening.codes]
        names = set(chain.from_iterable(map(tree.folders, folders)))
        classes = self.classes_of(tree, names)
        label_of = {name: label for label, name in enumerate(classes)}
        images: list[tuple[int, Iterable[str]]] = []
        for folder in folders:
            images.extend((label_of[name], tree.images(folder / name)) for name in tree.folders(folder))
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
            raise BadImages(
                f"{tree.root}: {strange[0]} is no WordNet id of ImageNet's 1000 classes",
                f"for other classes pass {named('data')} {CorruptedImages.name}",
            )
        return classes


def _severities(tree: Tree) -> list[str]:
    """Each severity of each corruption, such as ``frost/5``."""
    folders = [path for path in tree.root.glob("*/[1-5]") if path.is_dir()]
    return sorted(path.relative_to(tree.root).as_posix() for path in folders)
