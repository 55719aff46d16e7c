"""What a toolkit knows about a dataset on disk, without opening it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VISDA_CODES = {"Synthetic": "T", "Real": "V"}
"""tllib's names of VisDA-2017's domains, and dalib's: both are understood, whichever toolkit is there."""

FIRST_LABELS = {"PACS": 1}
"""Datasets whose lists do not count classes from 0."""


@dataclass(frozen=True)
class DatasetTable:
    """Where the images of a dataset are listed.

    Attributes:
        name: TLLib's name of the dataset
        classes: names of the classes, in the order of the labels
        domains: TLLib's code of each domain
        lists: code -> split -> path of the image list, relative to the domain's root. The splits are
            ``train`` and ``test``, or ``all`` for a dataset with one list a domain. Codes are those of
            ``domains`` and other spellings of them
        folders: what has to lie in the dataset's root for TLLib not to download something
        root_of: code -> the domain's root, relative to the dataset's; "" if they are the same
        folders_of: code -> what has to lie in the dataset's root for this domain, besides ``folders``
        first_label: the number of the first class in the lists
    """

    name: str
    classes: list[str]
    domains: list[str]
    lists: dict[str, dict[str, str]]
    folders: list[str]
    root_of: dict[str, str]
    folders_of: dict[str, list[str]] = field(default_factory=dict)
    first_label: int = 0

    def missing(self, root: str | Path, domains: list[str]) -> list[str]:
        """The folders of these domains that are not there, so that TLLib would try to download them."""
        needed = [*self.folders, *(folder for code in domains for folder in self.folders_of.get(code, []))]
        return [folder for folder in needed if not (Path(root) / folder).exists()]


def dataset_table(name: str, dataset: Any) -> DatasetTable:
    """What a toolkit's ImageList class says: one list a domain, or one a domain and split."""
    lists = {code: _splits(pattern) for code, pattern in dataset.image_list.items()}
    domains = list(lists)
    if name == "VisDA2017":
        lists, domains = _both_spellings(lists)
    return DatasetTable(
        name=name,
        classes=list(dataset.CLASSES),
        domains=domains,
        lists=lists,
        folders=[entry[0] for entry in dataset.download_list],
        root_of=dict.fromkeys(lists, ""),
        first_label=FIRST_LABELS.get(name, 0),
    )


def digits_table(datasets: dict[str, Any]) -> DatasetTable:
    """TLLib's ``Digits``: each domain is a dataset class of its own, in the folder of its name."""
    return DatasetTable(
        name="Digits",
        classes=list(datasets["MNIST"].CLASSES),
        domains=list(datasets),
        lists={code: _digit_lists(dataset.image_list) for code, dataset in datasets.items()},
        folders=[],
        root_of={code: code for code in datasets},
        folders_of={
            code: [f"{code}/{entry[0]}" for entry in dataset.download_list] for code, dataset in datasets.items()
        },
    )


def _splits(pattern: str) -> dict[str, str]:
    if "{}" in pattern:  # PACS
        return {"all": pattern.format("all")}
    if pattern.endswith(".txt"):
        return {"all": pattern}
    return {split: f"image_list/{pattern}_{split}.txt" for split in ("train", "test")}  # DomainNet


def _digit_lists(image_list: str | dict[str, str]) -> dict[str, str]:
    return {"all": image_list} if isinstance(image_list, str) else dict(image_list)


def _both_spellings(lists: dict[str, dict[str, str]]) -> tuple[dict[str, dict[str, str]], list[str]]:
    both = {}
    for name, letter in VISDA_CODES.items():
        both[name] = both[letter] = lists[name] if name in lists else lists[letter]
    return both, list(VISDA_CODES)
