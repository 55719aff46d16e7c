"""A user's own images in TLLib's scripts: layouts of this package as classes among TLLib's datasets."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from torchvision.datasets import VisionDataset
from torchvision.datasets.folder import default_loader

from tllib_ancon import self_training
from tllib_ancon.data.folders import Tree
from tllib_ancon.data.layouts import layout_of
from tllib_ancon.data.layouts.image_folder import require_class_folders
from tllib_ancon.data.open import open_domain
from tllib_ancon.runtime.errors import UserError

FOLDERS = ("ImageFolder", "CorruptedImages")
"""Layouts whose classes are folders. TLLib has no class of these names."""
LIST = "ImageList"
"""The layout of lists. TLLib's class of this name takes one list."""
OWN_IMAGES = (LIST, *FOLDERS)

UNKNOWN = "unknown"
"""TLLib's name for every class of an open-set target that the source does not have."""

_sources: WeakValueDictionary[tuple[str, str], Any] = WeakValueDictionary()
"""Layout and root -> the dataset that a script opened first. Its classes are those of the script's other domains."""


class _LabelledImages(NamedTuple):
    """N images of a domain."""

    paths: Sequence[str]
    labels: list[int]
    classes: Sequence[str]  # names, in the order of the labels


def extend_image_list(module: Any) -> None:
    """Let TLLib's ``ImageList(root, classes, data_list_file)`` take ``root`` and ``task``, too, as its datasets do."""
    list_class = module.ImageList
    open_one_list = list_class.__init__

    def __init__(dataset: Any, root: str, *args: Any, task: Any = None, download: Any = None, **options: Any) -> None:
        if task is None:
            open_one_list(dataset, root, *args, **options)
        else:
            _open(dataset, LIST, root, task, **options)

    list_class.__init__ = __init__
    list_class.domains = classmethod(_domains)
    list_class.take = _take_same_classes


def add_folders(module: Any) -> None:
    """Add the layouts of class folders to ``tllib.vision.datasets``."""
    for name in FOLDERS:
        setattr(module, name, _folder_class(module, name))


def _folder_class(module: Any, name: str) -> type:
    def __init__(dataset: Any, root: str, task: Any = None, download: Any = None, *args: Any, **options: Any) -> None:
        if task is None:
            passed = ", ".join(f"{option}={value!r}" for option, value in options.items() if option != "transform")
            raise UserError(
                f"{name} is opened by domain, and this script names none (it passes {passed or 'the root alone'}); use "
                "a script of TLLib's examples/domain_adaptation"
            )
        _open(dataset, name, root, task, *args, **options)

    text = f"The layout {name} of tllib_ancon. ``task`` names a domain in ``root``. Nothing is downloaded."
    return type(name, (module.ImageList,), {"__init__": __init__, "__module__": module.__name__, "__doc__": text})


def add_partial(module: Any) -> None:
    """Add the layouts to ``tllib.vision.datasets.partial``, where the target has some of the source's classes."""
    default_partial = module.default_partial

    def partial(dataset_class: type) -> Any:
        if dataset_class.__name__ in OWN_IMAGES:
            return type("PartialDataset", (dataset_class,), {"take": _take_partial_target})
        return default_partial(dataset_class)

    module.default_partial = partial
    _add_names(module)


def add_open_set(module: Any) -> None:
    """Add the layouts to ``tllib.vision.datasets.openset``, where classes of the target alone become one."""
    default_open_set = module.default_open_set

    def open_set(dataset_class: type, source: bool) -> Any:
        if dataset_class.__name__ not in OWN_IMAGES:
            return default_open_set(dataset_class, source)
        take = _take_open_set_source if source else _take_open_set_target
        return type("OpenSetDataset", (dataset_class,), {"take": take})

    module.default_open_set = open_set
    _add_names(module)


def dataset_names(names: set[str]) -> set[str]:
    """Those of ``names`` that are datasets; TLLib's scripts also list functions and type hints of its modules."""
    modules = [module for name, module in sys.modules.items() if name.startswith("tllib.vision.datasets")]
    return {name for name in names if name == "Digits" or any(_is_dataset(module, name) for module in modules)}


def _is_dataset(module: Any, name: str) -> bool:
    value = getattr(module, name, None)
    return isinstance(value, type) and issubclass(value, VisionDataset)


def _add_names(module: Any) -> None:
    from tllib.vision import datasets

    for name in OWN_IMAGES:
        setattr(module, name, getattr(datasets, name))


def _domains(dataset_class: type, root: str | None = None) -> list[str]:
    """The domains in ``root``. TLLib's datasets have the same ones everywhere."""
    name = dataset_class.__name__
    if root is None:
        raise UserError(f"the domains of {name} are those of a folder; call {name}.domains(root)")
    return list(layout_of(name).domains(Tree(root)))


def _open(dataset: Any, layout: str, root: str, task: str, transform: Any = None, target_transform: Any = None) -> None:
    """Fill a dataset with the samples and classes of one domain."""
    VisionDataset.__init__(dataset, root, transform=transform, target_transform=target_transform)
    dataset.layout = layout
    dataset.task = task
    dataset.folder = Path(root, task)
    dataset.loader = default_loader
    dataset.data_list_file = None
    key = (layout, os.path.realpath(root))
    source = _sources.get(key)
    dataset.take(source)
    if source is None:
        _sources[key] = dataset


def _images(dataset: Any) -> _LabelledImages:
    """The images of the dataset's domain."""
    domain = open_domain(dataset.root, dataset.layout, [dataset.task])
    if domain.labels is None:
        raise UserError(
            f"{dataset.root}: the images of {dataset.task} have no labels, and TLLib's scripts compute the accuracy on "
            "them; add labels, or use `tllib-ancon pretrain` and then `tllib-ancon adapt`"
        )
    return _LabelledImages(domain.paths or (), domain.labels.tolist(), domain.classes)


def _take_same_classes(dataset: Any, source: Any) -> None:
    """Take the samples of a domain that has the source's classes, or that is the source."""
    if source is None:
        images = _images(dataset)
        _set_samples(dataset, images, list(images.classes))
        return
    images = _images(dataset)
    may_lack = dataset.layout == LIST  # without names the largest label of a domain counts its classes
    require_class_folders(dataset.folder, images.classes, source.classes, str(source.folder), may_lack)
    _set_samples(dataset, images, source.classes)


def _take_partial_target(dataset: Any, source: Any) -> None:
    """Take the samples of a domain that has some of the source's classes."""
    if source is None:
        raise _opened_too_early(dataset)
    images = _images(dataset)
    require_class_folders(dataset.folder, images.classes, source.classes, str(source.folder), may_lack=True)
    _set_samples(dataset, images, source.classes)
    dataset.partial_classes_idx = sorted(set(dataset.targets))
    dataset.partial_classes = [source.classes[label] for label in dataset.partial_classes_idx]


def _take_open_set_source(dataset: Any, source: Any) -> None:
    """Take the samples of the source. Its classes are the ones with images, and :data:`UNKNOWN`, which has none."""
    images = _images(dataset)
    occurring = [images.classes[label] for label in sorted(set(images.labels))]
    _set_samples(dataset, images, [*occurring, UNKNOWN])


def _take_open_set_target(dataset: Any, source: Any) -> None:
    """Take the samples of the target. Those of classes that the source does not have are :data:`UNKNOWN`."""
    if source is None:
        raise _opened_too_early(dataset)
    _set_samples(dataset, _images(dataset), source.classes)


def _opened_too_early(dataset: Any) -> UserError:
    return UserError(f"{dataset.folder} is a target whose classes depend on the source; open the source first")


def _set_samples(dataset: Any, images: _LabelledImages, classes: list[str]) -> None:
    """Label each image by the name of its class among ``classes``; other names have the last label."""
    labels = {name: label for label, name in enumerate(classes)}
    label_of = [labels.get(name, len(classes) - 1) for name in images.classes]
    dataset.targets = [label_of[label] for label in images.labels]
    dataset.samples = list(zip(images.paths, dataset.targets, strict=True))
    dataset.classes = classes
    dataset.class_to_idx = {name: label for label, name in enumerate(classes)}


def _add_losses(module: Any) -> None:
    """Where a TLLib user looks for the losses of this package: ``tllib.self_training.ancon``."""
    module.ancon = self_training
    sys.modules["tllib.self_training.ancon"] = self_training


EXTENSIONS: dict[str, Callable[[Any], None]] = {
    "tllib.self_training": _add_losses,
    "tllib.vision.datasets.imagelist": extend_image_list,
    "tllib.vision.datasets": add_folders,
    "tllib.vision.datasets.partial": add_partial,
    "tllib.vision.datasets.openset": add_open_set,
}
"""Module of TLLib -> what is added to it."""
