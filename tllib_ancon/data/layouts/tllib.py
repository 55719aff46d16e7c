"""TLLib's datasets: Office31, OfficeHome, VisDA2017 and others, by the tables of its lists."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.layout import Layout, Opening, register
from tllib_ancon.data.lists import joined_lists, read_image_list
from tllib_ancon.runtime.errors import BadImages, UserError, unknown_name


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

    def open(self, opening: Opening) -> ImageSource:
        tree = opening.tree
        lists = []
        for code in opening.codes:
            base = tree.root / self.table.root_of.get(code, "")
            self._require_domain(code)
            by_split = self.table.lists[code]
            file = base / (by_split.get(opening.split) or by_split["all"])
            if not file.is_file():
                raise self._missing_list(opening, file)
            images = read_image_list(file, base, len(self.classes), first_label=self.table.first_label)
            lists.append(images)
        return joined_lists(tree, opening.codes, lists, self.classes)

    def _require_domain(self, code: str) -> None:
        if code not in self.table.lists:
            raise unknown_name(f"domain of {self.name}:", code, self.table.lists)

    def _missing_list(self, opening: Opening, file: Path) -> UserError:
        root = opening.root
        missing = [folder for folder in self._folders(opening.codes) if not (root / folder).exists()]
        hint = ""
        if missing:
            hint = f"; missing folders: {', '.join(missing)}"
        return BadImages(
            f"{root} does not hold {self.name}: {file.relative_to(root)} not found{hint}. Give the folder that holds it"
        )

    def _folders(self, codes: Sequence[str]) -> list[str]:
        """The folders of these domains, each once."""
        return list(dict.fromkeys(chain.from_iterable(self.table.folders[code] for code in codes)))

    def named_domains(self, root: Path) -> set[str]:
        return set(self.table.lists)


for _name, _table in TABLES.items():
    register(_TLLibDataset(_name, _table))
