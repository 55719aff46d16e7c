"""ImageList: ``ROOT/image_list/<domain>.txt``, with class names in ``image_list/classes.txt``; TLLib's layout."""

from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.layout import Layout, Opening, register
from tllib_ancon.data.lists import listed_images, read_class_names
from tllib_ancon.runtime.errors import BadImages, named, unknown_name

FOLDER = "image_list"


class _ImageList(Layout):
    name = "ImageList"
    help = "image_list/<domain>.txt"

    def open_domain(self, opening: Opening, code: str) -> ImageSource:
        tree = opening.tree
        names = sorted({path.stem for path in (tree.root / FOLDER).glob("*.txt")} - {"classes"})
        if not names:
            raise BadImages(
                f"{tree.root}: no image_list/*.txt here",
                f"for class folders pass {named('data', 'ImageFolder')}, for images without labels "
                f"{named('data', 'Folder')}",
            )
        file = tree.root / FOLDER / f"{code}.txt"
        if not file.is_file():
            raise unknown_name(f"domain of {tree.root}:", code, names)
        class_file = tree.root / FOLDER / "classes.txt"
        classes = read_class_names(class_file) if class_file.is_file() else []
        domain = listed_images(code, file, tree.root, classes)
        if classes:
            order = {name: label for label, name in enumerate(classes)}
            domain.require_same_order(order, str(class_file))
        return domain


register(_ImageList())
