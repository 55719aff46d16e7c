"""ImageFolder: ``ROOT/<domain>/<class>/*``, the layout of torchvision's datasets."""

from collections.abc import Sequence
from pathlib import Path

from tllib_ancon.data.folders import ROOT
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.layout import Layout, Opening, register
from tllib_ancon.data.transforms import KEEP_RATIO
from tllib_ancon.runtime.errors import MOST_SHOWN, BadImages, named
from tllib_ancon.runtime.text import first_few, showable


class _ImageFolder(Layout):
    """All domains have the same folders; with the classes of a model, which some may lack, each has some."""

    name = "ImageFolder"
    help = "class folders in ROOT/DOMAIN"
    resizing = KEEP_RATIO
    default_codes = (ROOT,)

    def open_domain(self, opening: Opening, code: str) -> ImageSource:
        tree = opening.tree
        folder = tree.domain(code)
        classes = _folders_of_classes(opening)
        paths: list[str] = []
        labels: list[int] = []
        for name in tree.folders(folder):
            images = tree.images_below(folder / name)
            paths += images
            labels += [classes.index(name)] * len(images)
        return tree.source(code, paths, [showable(name) for name in classes], labels)


register(_ImageFolder())


def _folders_of_classes(opening: Opening) -> Sequence[str]:
    """The class folders of all domains, in the order of the labels, which is torchvision's."""
    tree = opening.tree
    folders = [tree.domain(code) for code in opening.codes]
    expected = tree.folders(folders[0])
    names: set[str] = set()
    for folder in folders:
        if not any(tree.images(folder / name) for name in tree.folders(folder)):
            raise BadImages(
                f"{folder}: no folder in it holds an image",
                f"give a folder a class, or {named('data', 'Folder')} for images without labels",
            )
        if opening.classes is None:
            require_class_folders(folder, tree.folders(folder), expected, str(folders[0]))
        names.update(tree.folders(folder))
    return sorted(names)


def require_class_folders(
    folder: Path, names: Sequence[str], expected_names: Sequence[str], reference: str, may_lack: bool = False
) -> None:
    """Raise an error for a domain that has other class folders than the reference, or with ``may_lack`` one beyond."""
    shown_names = [showable(name) for name in names]
    expected = [showable(name) for name in expected_names]
    differing = sorted({*shown_names} - {*expected})
    if not may_lack:
        differing += sorted({*expected} - {*shown_names})
    if differing:
        raise BadImages(
            f"{folder} has other class folders than {reference}, {differing[0]!r} first: "
            f"{first_few(shown_names, MOST_SHOWN)} instead of {first_few(expected, MOST_SHOWN)}",
            "rename or remove the folders that differ",
        )
