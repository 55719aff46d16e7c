"""Folder: any tree of images, without labels."""

from collections.abc import Sequence
from itertools import chain

from tllib_ancon.data.folders import Tree, domain_of_files
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.layout import FolderLayout, Opening, layout


@layout
class _Folder(FolderLayout):
    name = "Folder"
    help = "any tree of images"

    def open(self, opening: Opening) -> ImageSource:
        return open_any(opening.tree, opening.codes, opening.classes)


def open_any(tree: Tree, codes: Sequence[str], classes: Sequence[str] | None) -> ImageSource:
    """Every image below these folders, without labels."""
    paths = chain.from_iterable(tree.images_below(tree.domain(code)) for code in codes)
    return domain_of_files(tree, codes, list(paths), classes or ())
