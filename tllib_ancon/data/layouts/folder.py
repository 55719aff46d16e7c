"""Folder: any tree of images, without labels."""

from tllib_ancon.data.folders import files_of_domain
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.layout import FolderLayout, Opening, layout


@layout
class _Folder(FolderLayout):
    name = "Folder"
    help = "any tree of images"

    def open_domain(self, opening: Opening, code: str) -> ImageSource:
        tree = opening.tree
        paths = list(tree.images_below(tree.domain(code)))
        return files_of_domain(tree, code, paths, opening.classes or ())
