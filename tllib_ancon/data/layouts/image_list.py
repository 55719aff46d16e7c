"""ImageList: ``ROOT/image_list/<domain>.txt``, with class names in ``image_list/classes.txt``; TLLib's layout."""

from collections.abc import Sequence
from pathlib import Path

from tllib_ancon.data.folders import ROOT, Tree
from tllib_ancon.data.image_source import ImageSource, class_folders, numbered, require_same_order
from tllib_ancon.data.layout import Layout, Opening, layout
from tllib_ancon.data.lists import ListedImages, joined_lists, read_class_names, read_image_list
from tllib_ancon.runtime.errors import BadImages, named, unknown_name

FOLDER = "image_list"
CLASSES = "classes.txt"
MOST_CLASSES = 1_000_000


@layout
class ImageList(Layout):
    name = "ImageList"
    help = "image_list/<domain>.txt"

    def open(self, opening: Opening) -> ImageSource:
        tree = opening.tree
        files = self._files(tree, opening.codes)
        class_file = tree.root / FOLDER / CLASSES
        classes = read_class_names(class_file) if class_file.is_file() else []
        lists = [read_image_list(file, tree.root, len(classes) or None) for file in files]
        if classes:
            order = {name: label for label, name in enumerate(classes)}
            for code, images in zip(opening.codes, lists, strict=True):
                require_same_order(class_folders(*images), order, code, str(class_file))
        else:
            classes = numbered(_count_classes(files, lists))
        return joined_lists(tree, opening.codes, lists, classes)

    def _files(self, tree: Tree, codes: Sequence[str]) -> list[Path]:
        """The list of each domain."""
        names = sorted(self.named_domains(tree.root))
        if not names:
            raise BadImages(
                f"{tree.root}: no image_list/*.txt here",
                f"for class folders pass {named('data', 'ImageFolder')}, for images without labels "
                f"{named('data', 'Folder')}",
            )
        files = [tree.root / FOLDER / f"{code}.txt" for code in codes]
        for code, file in zip(codes, files, strict=True):
            if not file.is_file():
                raise unknown_name(f"domain of {tree.root}:", code, names)
        return files

    def named_domains(self, root: Path) -> set[str]:
        return {path.stem for path in (root / FOLDER).glob("*.txt")} - {"classes"}

    def domains(self, tree: Tree) -> Sequence[str]:
        return sorted(self.named_domains(tree.root)) or [ROOT]


def _count_classes(files: Sequence[Path], lists: Sequence[ListedImages]) -> int:
    """One more than the largest label; 0 without labels."""
    count = 0
    for file, images in zip(files, lists, strict=True):
        if images.labels is None:
            continue
        largest = int(images.labels.max())
        if largest >= MOST_CLASSES:
            raise BadImages(
                f"{file}: label {largest} is above {MOST_CLASSES - 1:,}, the largest possible", "correct it"
            )
        count = max(count, largest + 1)
    return count
