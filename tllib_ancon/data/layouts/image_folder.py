"""ImageFolder: ``ROOT/<domain>/<class>/*``, the layout of torchvision's datasets."""

from collections.abc import Sequence
from pathlib import Path

from tllib_ancon.data.domain import Domain
from tllib_ancon.data.folders import ROOT, SUFFIXES, Tree, labelled_domain
from tllib_ancon.data.layout import FolderLayout, Opening, layout
from tllib_ancon.runtime.errors import MOST_SHOWN, BadImages, UserError, named
from tllib_ancon.runtime.text import first_few, showable


@layout
class ImageFolder(FolderLayout):
    name = "ImageFolder"
    help = "class folders in ROOT/DOMAIN"

    def open(self, opening: Opening) -> Domain:
        return open_class_folders(opening.tree, opening.codes, opening.classes)

    def domains(self, tree: Tree) -> Sequence[str]:
        domains = super().domains(tree)
        holds_images = any(tree.images(tree.root / name) for name in domains)
        return [ROOT] if holds_images else domains  # then the folders are classes


def open_class_folders(tree: Tree, codes: Sequence[str], classes: Sequence[str] | None) -> Domain:
    """``root/domain/class/*``, in the order of torchvision. All domains have the same folders; with ``classes`` of a
    model, which some may lack, each has some."""
    domain_folders = [tree.domain(code) for code in codes]
    if classes is None:
        names_of = _equal_class_folders(tree, domain_folders)
    else:
        names_of = {folder: _subfolders_in(tree, folder) for folder in domain_folders}
    class_names = sorted({name for names in names_of.values() for name in names})
    images = []
    for folder in domain_folders:
        for name in names_of[folder]:
            paths = list(tree.images_below(folder / name))
            if not paths and classes is None:
                raise BadImages(f"class folder {folder / name} holds no image ({', '.join(SUFFIXES)})", "fill it")
            images.append((class_names.index(name), paths))
    return labelled_domain(tree, codes, [showable(name) for name in class_names], images)


def _equal_class_folders(tree: Tree, domain_folders: Sequence[Path]) -> dict[Path, list[str]]:
    """The names of the class folders of each domain; an error for domains that have other ones than the first."""
    names_of = {folder: _class_folders_in(tree, folder) for folder in domain_folders}
    first = domain_folders[0]
    expected = [showable(name) for name in names_of[first]]
    for folder in domain_folders:
        require_same_folders(folder, names_of[folder], expected, str(first))
    return names_of


def _subfolders_in(tree: Tree, folder: Path) -> list[str]:
    names = tree.folders(folder)
    if not names and tree.images(folder):
        raise BadImages(
            f"{folder} holds images and no folder a class",
            f"to read images without labels, pass {named('data', 'Folder')}",
        )
    return names


def _class_folders_in(tree: Tree, folder: Path) -> list[str]:
    """The folders in a domain, of which one must hold images."""
    names = _subfolders_in(tree, folder)
    if any(tree.images(folder / name) for name in names):
        return names
    nested = [name for name in names if tree.folders(folder / name)]
    hint = ""
    if nested:
        hint = f"; if {nested[0]!r} is a domain, name it in the place of the root"
    raise BadImages(f"{folder}: no folder in it holds an image", f"expected a folder a class{hint}")


def require_known_folders(folder: Path, names: Sequence[str], expected: list[str], reference: str) -> None:
    """Raise an error for a class folder whose name is none of the expected ones."""
    shown_names = [showable(name) for name in names]
    strange = sorted(set(shown_names) - set(expected))
    if strange:
        raise _other_folders(folder, strange[0], shown_names, expected, reference)


def require_same_folders(folder: Path, names: Sequence[str], expected: list[str], reference: str) -> None:
    """Raise an error for a domain that has not exactly the expected class folders."""
    require_known_folders(folder, names, expected, reference)
    shown_names = [showable(name) for name in names]
    missing = sorted(set(expected) - set(shown_names))
    if missing:
        raise _other_folders(folder, missing[0], shown_names, expected, reference)


def _other_folders(folder: Path, first: str, names: list[str], expected: list[str], reference: str) -> UserError:
    return BadImages(
        f"{folder} has other class folders than {reference}, {first!r} first: {first_few(names, MOST_SHOWN)} "
        f"instead of {first_few(expected, MOST_SHOWN)}",
        "rename or remove the folders that differ",
    )
