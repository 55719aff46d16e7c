"""ImageNetC and CorruptedImages: ``ROOT/<corruption>/<severity>/<class>/*``, the layout of ImageNet-C."""

from collections.abc import Sequence
from typing import Any

from tllib_ancon.data.layout import SQUARE, Opening, layout
from tllib_ancon.data.layouts.image_folder import ImageFolder
from tllib_ancon.runtime.errors import BadImages, named


@layout
class CorruptedImages(ImageFolder):
    """Any classes. A domain is a severity of a corruption, such as ``frost/5``."""

    name = "CorruptedImages"
    help = "corruption/severity/class/*"
    resizing = SQUARE
    default_codes: Sequence[str] = ()


@layout
class ImageNetC(CorruptedImages):
    """ImageNet's classes, in the order of ImageNet classifiers."""

    name = "ImageNetC"
    help = "the same with ImageNet's WordNet ids as classes"

    def folders_of_classes(self, opening: Opening) -> Sequence[str]:
        from timm.data.imagenet_info import ImageNetInfo  # timm starts slowly, and each spawned worker reads this file

        imagenet: Any = ImageNetInfo("imagenet-1k")
        classes = sorted(imagenet.label_names())
        strange = sorted({*super().folders_of_classes(opening)} - {*classes})
        if strange:
            raise BadImages(
                f"{opening.root}: {strange[0]} is no WordNet id of ImageNet's 1000 classes",
                f"for other classes pass {named('data')} {CorruptedImages.name}",
            )
        return classes
