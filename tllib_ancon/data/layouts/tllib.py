"""TLLib's datasets: Office31, OfficeHome, VisDA2017 and others, by the tables of its lists."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.layout import Layout, Opening, register
from tllib_ancon.data.lists import listed_images
from tllib_ancon.runtime.errors import BadImages, unknown_name


@dataclass(frozen=True)
class _Table:
    """Where TLLib lists the images of a dataset. ``tllib.json`` has its tables, so that they need no toolkit."""

    classes: list[str]  # in the order of the labels
    # Code of a domain -> split -> path of the image list, relative to the domain's root. The splits are ``train`` and
    # ``test``, or ``all`` for one list a domain.
    lists: dict[str, dict[str, str]]
    folders: dict[str, list[str]]  # code -> what TLLib would download where it is not in the dataset's root
    root_of: dict[str, str] = field(default_factory=dict)  # code -> its root below the dataset's, where that is another
    first_label: int = 0  # the number of the first class in the lists


ENTRIES = json.loads(Path(__file__).with_name("tllib.json").read_text())
TABLES = {name: _Table(**entry) for name, entry in ENTRIES.items()}


class _TLLibDataset(Layout):
    """One dataset of TLLib."""

    def __init__(self, name: str, table: _Table):
        self.name = name
        self.table = table
        self.classes = table.classes

    def open_domain(self, opening: Opening, code: str) -> ImageSource:
        if code not in self.table.lists:
            raise unknown_name(f"domain of {self.name}:", code, self.table.lists)
        root = opening.tree.root
        base = root / self.table.root_of.get(code, "")
        by_split = self.table.lists[code]
        file = base / (by_split.get(opening.split) or by_split["all"])
        if not file.is_file():
            folders = ", ".join(self.table.folders[code])
            raise BadImages(
                f"{root} does not hold {self.name}: {file.relative_to(root)} not found",
                f"give the folder that holds {folders}",
            )
        return listed_images(code, file, base, self.classes, self.table.first_label)


for _name, _table in TABLES.items():
    register(_TLLibDataset(_name, _table))
