"""A user's own images in TLLib's scripts: layouts of this package as classes among TLLib's datasets."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from tllib_ancon.runtime.errors import UserError

FOLDERS = "ImageFolder"
"""The layout whose classes are folders. TLLib has no class of this name."""
LIST = "ImageList"
"""The layout of lists. TLLib's class of this name takes one list."""
OWN_IMAGES = (LIST, FOLDERS)

UNKNOWN = "unknown"
"""TLLib's name for every class of an open-set target that the source does not have."""

PARTIAL = "partial target"
OPEN_SET = "open-set target"
OPEN_SET_SOURCE = "open-set source"
VARIANTS = {(): PARTIAL, (False,): OPEN_SET, (True,): OPEN_SET_SOURCE}
"""What a partial or open-set script says beside a dataset -> the variant. An open-set script says whether it is the
source."""

_sources: WeakValueDictionary[tuple[str, str], Any] = WeakValueDictionary()
"""Layout and root -> the dataset that a script opened first. Its classes are those of the script's other domains."""


def _extend_image_list(module: Any) -> None:
    """Let TLLib's ``ImageList(root, classes, data_list_file)`` take ``root`` and ``task``, too, as its datasets do."""
    list_class = module.ImageList
    open_one_list = list_class.__init__

    def __init__(dataset: Any, root: str, *args: Any, task: Any = None, download: Any = None, **options: Any) -> None:
        if task is None:
            open_one_list(dataset, root, *args, **options)
        else:
            _open(dataset, LIST, root, task, **options)

    list_class.__init__ = __init__


def _add_folders(module: Any) -> None:
    """Add the layout of class folders to ``tllib.vision.datasets``."""

    def __init__(dataset: Any, root: str, task: str, download: Any = None, *args: Any, **options: Any) -> None:
        _open(dataset, FOLDERS, root, task, *args, **options)

    text = "The layout ImageFolder of tllib_ancon. ``task`` names a domain in ``root``. Nothing is downloaded."
    content = {"__init__": __init__, "__module__": module.__name__, "__doc__": text}
    module.ImageFolder = type(FOLDERS, (module.ImageList,), content)


def _add_variants(name: str, module: Any) -> None:
    """Add the layouts to ``tllib.vision.datasets.partial``, where the target has some of the source's classes, or to
    ``tllib.vision.datasets.openset``, where classes of the target alone become one. The function of this name makes the
    variant of a dataset there, for an open set that of the source or the target."""
    from tllib.vision import datasets

    theirs = getattr(module, name)

    def variant_of(dataset_class: type, *is_source: bool, **options: bool) -> Any:
        if dataset_class.__name__ in OWN_IMAGES:
            variant = VARIANTS[(*is_source, *options.values())]
            return type(dataset_class.__name__, (dataset_class,), {"variant": variant})
        return theirs(dataset_class, *is_source, **options)

    setattr(module, name, variant_of)
    for layout in OWN_IMAGES:
        setattr(module, layout, getattr(datasets, layout))


def _open(dataset: Any, layout: str, root: str, task: str, transform: Any = None, target_transform: Any = None) -> None:
    """Fill a dataset with the samples and classes of one domain."""
    from torchvision.datasets import VisionDataset  # here: enabling imports nothing heavy
    from torchvision.datasets.folder import default_loader

    from tllib_ancon.data.open import open_domain

    VisionDataset.__init__(dataset, root, transform=transform, target_transform=target_transform)
    images = open_domain(root, layout, [task])
    if images.labels is None:
        raise UserError(
            f"{root}: the images of {task} have no labels, and TLLib's scripts compute the accuracy on them",
            "add labels, or use `tllib-ancon pretrain` and then `tllib-ancon adapt`",
        )
    dataset.layout = layout
    dataset.task = task
    dataset.folder = Path(root, task)
    dataset.loader = default_loader
    dataset.data_list_file = None
    key = (layout, os.path.realpath(root))
    source = _sources.get(key)
    dataset.classes = _classes_of(dataset, images, source)
    dataset.class_to_idx = {name: label for label, name in enumerate(dataset.classes)}
    last = len(dataset.classes) - 1
    label_of = [dataset.class_to_idx.get(name, last) for name in images.classes]
    dataset.targets = [label_of[label] for label in images.labels.tolist()]
    dataset.samples = list(zip(images.paths or (), dataset.targets, strict=True))
    dataset.partial_classes_idx = sorted(set(dataset.targets))
    dataset.partial_classes = [dataset.classes[label] for label in dataset.partial_classes_idx]
    if source is None:
        _sources[key] = dataset


def _classes_of(dataset: Any, images: Any, source: Any) -> list[str]:
    """The classes of a dataset, in the order of the labels: those of the source, once it is open."""
    variant = getattr(dataset, "variant", "")
    if variant == OPEN_SET_SOURCE:
        occurring = sorted(set(images.labels.tolist()))
        return [*(images.classes[label] for label in occurring), UNKNOWN]
    if source is None and variant:
        raise UserError(f"{dataset.folder} is a target whose classes depend on the source", "open the source first")
    if source is None:
        return list(images.classes)
    if variant != OPEN_SET:
        from tllib_ancon.data.layouts.image_folder import require_class_folders

        may_lack = variant == PARTIAL or dataset.layout == LIST  # without names the largest label counts the classes
        require_class_folders(dataset.folder, images.classes, source.classes, str(source.folder), may_lack)
    classes: list[str] = source.classes
    return classes


EXTENSIONS: dict[str, Callable[[Any], None]] = {
    "tllib.vision.datasets.imagelist": _extend_image_list,
    "tllib.vision.datasets": _add_folders,
    "tllib.vision.datasets.partial": partial(_add_variants, "default_partial"),
    "tllib.vision.datasets.openset": partial(_add_variants, "default_open_set"),
}
"""Module of TLLib -> what is added to it."""
