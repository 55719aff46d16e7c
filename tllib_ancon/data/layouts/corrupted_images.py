"""ImageNetC and CorruptedImages: ``ROOT/<corruption>/<severity>/<class>/*``, the layout of ImageNet-C."""

from collections.abc import Sequence
from typing import Any

from tllib_ancon.data.layout import SQUARE, Opening, layout
from tllib_ancon.data.layouts.image_folder import ImageFolder, require_class_folders


@layout
class _CorruptedImages(ImageFolder):
    """Any classes. A domain is a severity of a corruption, such as ``frost/5``."""

    name = "CorruptedImages"
    help = "corruption/severity/class/*"
    resizing = SQUARE
    default_codes: Sequence[str] = ()


@layout
class ImageNetC(_CorruptedImages):
    """ImageNet's classes, in the order of ImageNet classifiers."""

    name = "ImageNetC"
    help = "the same with ImageNet's WordNet ids as classes"

    def folders_of_classes(self, opening: Opening) -> Sequence[str]:
        from timm.data.imagenet_info import ImageNetInfo  # timm starts slowly, and each spawned worker reads this file

        imagenet: Any = ImageNetInfo("imagenet-1k")
        classes = sorted(imagenet.label_names())
        folders = super().folders_of_classes(opening)
        require_class_folders(opening.root, folders, classes, "the WordNet ids of ImageNet", may_lack=True)
        return classes
