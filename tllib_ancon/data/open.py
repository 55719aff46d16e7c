"""Opening images as a domain: by the name of a dataset, or from Python objects."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch.utils.data import DataLoader, Dataset

from tllib_ancon.data.domain import Domain, numbered
from tllib_ancon.data.folders import (
    FOLDER,
    IMAGE_FOLDER,
    LAYERED,
    ROOT,
    Tree,
    open_any,
    open_class_folders,
    open_corrupted,
)
from tllib_ancon.data.hugging_face import HUGGING_FACE, of_hugging_face, open_splits
from tllib_ancon.data.images import Items
from tllib_ancon.data.labels import as_numbers
from tllib_ancon.data.lists import IMAGE_LIST, TLLIB, known_domains, open_lists, open_toolkit_lists
from tllib_ancon.data.named_arrays import separated
from tllib_ancon.data.pixels import Decoding
from tllib_ancon.data.tensors import ARRAYS, on_cpu, rows_of
from tllib_ancon.data.transforms import KEEP_RATIO
from tllib_ancon.runtime.errors import UserError, reading, unknown_name

ANY_RANGE = (0.0, 1.0)
"""A range by which every finite value can be decoded."""

NAMES = (IMAGE_LIST, IMAGE_FOLDER, FOLDER, ARRAYS, *LAYERED, *TLLIB, f"{HUGGING_FACE}NAME_OR_PATH")


def open_domain(
    root: str | Path,
    dataset: str,
    codes: Sequence[str],
    split: str = "train",
    num_classes: int | None = None,
    allow_outside: bool = False,
    subset: str | None = None,
    *,
    classes: Sequence[str] | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    allow_download: bool = False,
    skip_corrupt: bool = False,
    workers: int = 0,
    decoding: Decoding | None = None,
) -> Domain:
    """Open the domains of these codes as one; nothing is downloaded unless ``allow_download`` is given.

    The settings of :class:`~tllib_ancon.config.data.DataConfig` say what most arguments mean. A code may be a list, a
    folder (``.`` is the root) or a split, with the name of a configuration before it as ``clipart/train``. ``split`` is
    ``train`` or ``test`` if the dataset has two lists a domain. ``classes`` are names in the order of the labels; other
    folders are an error. A Hugging Face dataset is one of the hub, or a folder that ``save_to_disk`` wrote or that
    holds data files. Every image must exist, unless ``skip_corrupt`` decodes each once, in ``workers`` processes, and
    leaves out unreadable images.
    """
    if dataset == ARRAYS:
        return open_arrays(root)
    if not codes:
        raise UserError(f"no domain given for dataset {dataset}; name one as `target`, or leave `data` out")
    if subset is not None and dataset not in LAYERED:
        raise UserError(f"`subset` is for {' and '.join(LAYERED)}, not for {dataset}; leave it out")
    if dataset.startswith(HUGGING_FACE):
        name = dataset.removeprefix(HUGGING_FACE)
        if not os.path.isdir(name) and (Path(root) / name).is_dir():
            name = str(Path(root) / name)
        splits = open_splits(name, codes, allow_download)
        domain = of_hugging_face(splits, f"{HUGGING_FACE}{name} {'+'.join(codes)}", classes, image_column, label_column)
    else:
        tree = Tree(root, allow_outside, skip_corrupt)
        openers = {
            IMAGE_LIST: partial(open_lists, tree, codes, num_classes),
            IMAGE_FOLDER: partial(open_class_folders, tree, codes, classes),
            FOLDER: partial(open_any, tree, codes, classes or numbered(num_classes or 0)),
            **dict.fromkeys(LAYERED, partial(open_corrupted, tree, dataset, codes, subset)),
            **dict.fromkeys(TLLIB, partial(open_toolkit_lists, tree, dataset, codes, split)),
        }
        if dataset not in openers:
            raise unknown_name("dataset", dataset, NAMES)
        domain = openers[dataset]()
    domain = domain.decoded_by(decoding)
    return without_unreadable(domain, workers) if skip_corrupt else require_files(domain)


def as_domain(
    images: Any,
    *,
    labels: ArrayLike | bool | None = None,
    classes: Sequence[str] | None = None,
    name: str | None = None,
    skip_corrupt: bool = False,
    workers: int = 0,
    allow_outside: bool = False,
    decoding: Decoding | None = None,
) -> Domain:
    """A domain of Python objects: a :class:`Domain`, or images as for :func:`tllib_ancon.adapt`.

    The names of ``classes`` are in the order of the labels and of the model's outputs. Hugging Face datasets bring
    names and labels. Otherwise there are none by default; given labels are named by numbers. A folder holds images
    without labels, at any depth, until a model is known whose classes have the names of its subfolders. ``labels`` True
    takes each subfolder as a class, False none.
    """
    source, own_labels = separated(images)
    if own_labels is not None and (labels is None or labels is True):
        labels = own_labels
    if isinstance(source, str | os.PathLike) and str(source).lower().endswith(".npy") and os.path.isfile(source):
        source = open_arrays(str(source))
    images = [source] if isinstance(source, str | os.PathLike) and os.path.isfile(source) else source
    if isinstance(images, Domain):
        domain = images
    elif isinstance(images, str | os.PathLike):
        tree = Tree(images, allow_outside, skip_corrupt)
        opener = open_class_folders if labels is True else open_any
        domain = opener(tree, [ROOT], classes).decoded_by(decoding)
        domain = without_unreadable(domain, workers) if skip_corrupt else require_files(domain)
        domain = replace(domain, plain_folder=labels is None)
    elif isinstance(images, list) and images and all(isinstance(path, str | os.PathLike) for path in images):
        domain = require_files(Domain.of_files(name or "given", list(map(os.fspath, images)), list(classes or ())))
    elif type(images).__module__.partition(".")[0] == "datasets":
        domain = of_hugging_face(images, name or "the dataset", classes)
    else:
        kind, data = name or type(images).__name__, on_cpu(images)
        domain = Domain(kind, rows_of(data, kind) or Items(data, kind), list(classes or ()))
    domain = replace(domain, name=name or domain.name).decoded_by(decoding)
    if labels is None or isinstance(labels, bool):
        return domain.without_labels() if labels is False else domain
    given = as_numbers(f"domain {domain.name}: labels", on_cpu(labels), list(classes or domain.classes))
    largest = int(given.max(initial=0)) if given.dtype.kind in "iu" else 0
    return replace(domain, classes=list(classes or domain.classes or numbered(largest + 1)), labels=given)


def open_arrays(file: str | Path) -> Domain:
    """The rows of a file ``x.npy`` (N, ...), mapped from disk, with the labels of a ``y.npy`` (N,) beside it."""
    labels = Path(file).with_name("y.npy")
    with reading(file, "an array", "; save an array of float32 with numpy.save"):
        rows = np.lib.format.open_memmap(file, mode="r")
    with reading(labels, "labels"):
        known = np.load(labels, allow_pickle=False) if labels.is_file() else None
    return as_domain(rows, labels=known, name=Path(file).stem)


def domains_in(tree: Tree, dataset: str) -> list[str]:
    """The domains in a root, of a dataset that is not TLLib's; one that is not there if there is none."""
    if dataset == IMAGE_LIST:
        return sorted(known_domains(tree.root, dataset)) or [ROOT]
    if dataset in LAYERED:
        return tree.layers() or ["corruption/severity"]
    names = [] if dataset.startswith(HUGGING_FACE) or tree.images(tree.root) else tree.folders(tree.root)
    of_classes = dataset == IMAGE_FOLDER and any(tree.images(tree.root / name) for name in names)
    return [ROOT] if of_classes or not names else names


def missing_dataset(root: str | Path) -> UserError:
    """The error for a root without the name of its dataset, with a guess."""
    layout = ""
    if any((Path(root) / "image_list").glob("*.txt")):
        layout = IMAGE_LIST
    elif os.path.isdir(root):
        tree = Tree(root)
        layout = FOLDER if tree.images(root) else IMAGE_FOLDER if tree.folders(root) else ""
    guess = f"{root} looks like {layout}: pass `data` {layout}. " if layout else ""
    return UserError(f"`data` is missing: which dataset lies in {root}? {guess}Names: {', '.join(NAMES)}")


def default_resizing(dataset: str | None) -> str:
    """TLLib's square for its lists and layouts; folders, ``hf:NAME`` and Python objects keep the aspect ratio."""
    keeps_ratio = not dataset or dataset in (IMAGE_FOLDER, FOLDER) or dataset.startswith(HUGGING_FACE)
    return KEEP_RATIO if keeps_ratio else "default"


def require_files(domain: Domain) -> Domain:
    """This domain, if every image of it is a regular file; nothing is decoded."""
    missing = [path for path in domain.paths or () if not os.path.isfile(path)]
    if missing:
        raise UserError(
            f"domain {domain.name} is incomplete: {len(missing)} of {len(domain)} images are missing, {missing[0]} "
            "first; pass `skip_corrupt=True` to leave such images out"
        )
    return domain


def without_unreadable(domain: Domain, workers: int = 0) -> Domain:
    """The domain without unreadable images, which ``workers`` processes find; ``skipped`` holds the reasons."""
    of_any_range = domain.decoded_by(replace(domain.images.decoding, pixel_range=ANY_RANGE))
    loader = DataLoader(
        _Reasons(of_any_range), batch_size=16, num_workers=workers, collate_fn=list, generator=torch.Generator()
    )
    reasons = [reason for batch in loader for reason in batch]
    skipped = [reason for reason in reasons if reason]
    if len(skipped) == len(domain):
        raise UserError(
            f"domain {domain.name}: not one of its {len(domain)} images can be decoded; repair them or give others: "
            f"{skipped[0]}"
        )
    readable = [index for index, reason in enumerate(reasons) if not reason]
    return replace(domain.subset(readable), skipped=[*domain.skipped, *skipped])


class _Reasons(Dataset[Any]):
    def __init__(self, domain: Domain):
        self.domain = domain

    def __len__(self) -> int:
        return len(self.domain)

    def __getitem__(self, index: int) -> str:
        try:
            self.domain.images.image(int(self.domain.positions[index]))
        except UserError as error:
            return str(error)
        return ""
