"""ImageFolder: ``ROOT/<domain>/<class>/*``, the layout of torchvision's datasets."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tllib_ancon.data.folders import ROOT, Tree, labelled_domain
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.layout import FolderLayout, Opening, layout
from tllib_ancon.runtime.errors import MOST_SHOWN, BadImages, named
from tllib_ancon.runtime.text import first_few, showable


@layout
class ImageFolder(FolderLayout):
    name = "ImageFolder"
    help = "class folders in ROOT/DOMAIN"

    def open(self, opening: Opening) -> ImageSource:
        return open_class_folders(opening.tree, opening.codes, opening.classes)

    def domains(self, tree: Tree) -> Sequence[str]:
        domains = super().domains(tree)
        holds_images = any(tree.images(tree.root / name) for name in domains)
        return [ROOT] if holds_images else domains  # then the folders are classes


def open_class_folders(tree: Tree, codes: Sequence[str], classes: Sequence[str] | None) -> ImageSource:
    """``root/domain/class/*``, in the order of torchvision. All domains have the same folders; with ``classes`` of a
    model, which some may lack, each has some."""
    domain_folders = [tree.domain(code) for code in codes]
    names_of = {folder: _class_folders_in(tree, folder) for folder in domain_folders}
    if classes is None:
        first = domain_folders[0]
        for folder in domain_folders:
            require_class_folders(folder, names_of[folder], names_of[first], str(first))
    class_names = sorted({name for names in names_of.values() for name in names})
    images: list[tuple[int, Iterable[str]]] = []
    for folder, names in names_of.items():
        images.extend((class_names.index(name), tree.images_below(folder / name)) for name in names)
    return labelled_domain(tree, codes, [showable(name) for name in class_names], images)


def _class_folders_in(tree: Tree, folder: Path) -> list[str]:
    """The folders in a domain, of which one must hold images."""
    names = tree.folders(folder)
    if any(tree.images(folder / name) for name in names):
        return names
    raise BadImages(
        f"{folder}: no folder in it holds an image",
        f"give a folder a class, or {named('data', 'Folder')} for images without labels",
    )


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
