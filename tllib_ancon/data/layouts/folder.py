"""Folder: any tree of images, without labels."""

from tllib_ancon.data.folders import ROOT
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.layout import Layout, Opening, register
from tllib_ancon.data.transforms import KEEP_RATIO


class _Folder(Layout):
    name = "Folder"
    help = "any tree of images"
    resizing = KEEP_RATIO
    default_codes = (ROOT,)

    def open_domain(self, opening: Opening, code: str) -> ImageSource:
        tree = opening.tree
        return tree.source(code, tree.images_below(tree.domain(code)))


register(_Folder())
