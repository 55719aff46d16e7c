"""Images and labels in one object: a file of arrays, a mapping by usual names, a pair."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from tllib_ancon.data.images import DEEP_KINDS, IMAGE_NAMES, kind_of
from tllib_ancon.runtime.errors import BadImages, reading

NamedArrays = Mapping[str, Any]
"""Arrays or tensors by name."""

ARRAY_SUFFIXES = (".npz", ".pt", ".pth", ".h5", ".hdf5", ".mat", ".pkl", ".pickle")
"""Files of arrays, beside ``.npy``."""

OF_LABELS = ("labels", "label", "targets", "target", "y", "arr_1")
"""Usual names of labels, in small letters."""

SPLIT = re.compile(r"^(train|test|validation|valid|val)_?(?=.)|(?<=.)_?(train|test|validation|valid|val)$")
"""The part of a name that says which of several sets an array belongs to."""


class _Separated(NamedTuple):
    """Images, and their labels if the same object holds them."""

    images: Any
    labels: Any = None


def separated(images: Any) -> _Separated:
    """Images and labels of a file of arrays, a mapping with usual names, or a pair (images, labels); everything else is
    images.

    Raises:
        UserError: a file or mapping in which several arrays could be the images
    """
    if isinstance(images, str | os.PathLike):
        path = os.fspath(images)
        if path.lower().endswith(ARRAY_SUFFIXES) and os.path.isfile(path):
            return _of_content(_read(path), path)
        return _Separated(images)
    if isinstance(images, np.lib.npyio.NpzFile):
        return _of_content(images, "the .npz file")
    if hasattr(images, "keys") and not hasattr(images, "features") and not is_dataset_of_hugging_face(images):
        return _of_mapping(dict(images.items()))
    if isinstance(images, tuple) and _is_pair(images):
        return _Separated(*images)
    return _Separated(images)


def _is_pair(content: Any) -> bool:
    """Whether a tuple or list is (images, labels)."""
    return len(content) == 2 and _is_labels_of(content[1], content[0])


def is_dataset_of_hugging_face(images: Any) -> bool:
    """Whether the library ``datasets`` has made an object."""
    return type(images).__module__.partition(".")[0] == "datasets"


def _read(path: str) -> Any:
    """The content of a file of arrays."""
    ending = os.path.splitext(path)[1].lower()
    if ending == ".npz":
        with reading(path, "arrays", "save arrays of numbers with numpy.savez"):
            return dict(np.load(path, allow_pickle=False))
    if ending in (".pt", ".pth"):
        with reading(path, "tensors", "save a tensor, or a dict of them, with torch.save"):
            return torch.load(path, map_location="cpu", weights_only=True)
    raise BadImages(
        f"{path}: files {ending} are not read here",
        "open it in Python and pass its array of images, or save that with "
        "numpy.savez(FILE, images=..., labels=...) as .npz",
    )


def _of_content(content: Any, name: str) -> _Separated:
    """Images and labels in a file, where one array alone can be the images."""
    if not hasattr(content, "keys"):
        if isinstance(content, tuple | list) and _is_pair(content):
            return _Separated(*content)
        return _Separated(content)
    with reading(name, "arrays", "save arrays of numbers with numpy.savez"):
        arrays = {key: content[key] for key in content if hasattr(content[key], "shape")}
    _refuse_several_sets(arrays, name)
    images = arrays[_name_of_images(arrays, name)]
    of_labels = [key for key in _named(arrays, OF_LABELS) if len(arrays[key]) == len(images)]
    return _Separated(images, _only(arrays, of_labels))


def _name_of_images(arrays: NamedArrays, name: str) -> str:
    """The usual name of images that is there, else the name of the one array that is no vector."""
    candidates = _named(arrays, IMAGE_NAMES) or [key for key, array in arrays.items() if array.ndim > 1]
    if len(candidates) == 1:
        return candidates[0]
    shown = ", ".join(f"{key} {tuple(array.shape)}" for key, array in arrays.items()) or "no array"
    raise BadImages(
        f"{name}: no name says which array holds the images: {shown[:400]}",
        "pass that array, or save it under the name images",
    )


def _only(arrays: NamedArrays, names: Sequence[str]) -> Any:
    """The array of the only name; None of no name or of several."""
    if len(names) != 1:
        return None
    return arrays[names[0]]


def _of_mapping(arrays: dict[Any, Any]) -> _Separated:
    """Images and labels by usual names; other arrays reach the model by their names, without labels."""
    if not all(isinstance(key, str) for key in arrays):
        return _Separated(arrays)
    _refuse_several_sets(arrays, "the mapping")
    of_images = _named(arrays, IMAGE_NAMES)
    if of_images:
        first = arrays[of_images[0]]
    else:
        first = next(iter(arrays.values()), None)
    of_labels = [key for key in _named(arrays, OF_LABELS) if _is_labels_of(arrays[key], first)]
    inputs = {key: array for key, array in arrays.items() if key not in of_labels}
    labels = _only(arrays, of_labels)
    if len(inputs) == 1 and of_images and (labels is not None or _is_of_pixels(first)):
        return _Separated(first, labels)
    if labels is not None and of_labels[0].lower() not in ("y", "arr_1"):
        return _Separated(inputs, labels)
    return _Separated(arrays)


def _named(arrays: NamedArrays, names: tuple[str, ...]) -> list[str]:
    return [key for key in arrays if key.lower() in names]


def _refuse_several_sets(arrays: NamedArrays, name: str) -> None:
    usual = (*IMAGE_NAMES, *OF_LABELS)
    sets = [key for key in arrays if SPLIT.sub("", key.lower()) in usual and key.lower() not in usual]
    images = [key for key in sets if SPLIT.sub("", key.lower()) in IMAGE_NAMES]
    if not images:
        return
    labels = next((key for key in sets if key not in images), "LABELS")
    raise BadImages(
        f"{name} holds several sets: {', '.join(sets)}. Pass one, such as images=arrays[{images[0]!r}] with "
        f"labels=arrays[{labels!r}], or save it with numpy.savez(FILE, images=..., labels=...)"
    )


def _is_labels_of(labels: Any, images: Any) -> bool:
    """Whether these are whole numbers, one for each image."""
    if isinstance(images, str) or not hasattr(images, "__len__") or getattr(images, "shape", None) == ():
        return False
    if isinstance(labels, list | tuple):
        are_numbers = all(isinstance(label, int | np.integer) for label in labels)
    else:
        are_numbers = kind_of(labels).startswith(("int", "uint")) and len(labels.shape) == 1
    return are_numbers and len(labels) == len(images)


def _is_of_pixels(array: Any) -> bool:
    """Whether an array holds bytes or deep pixels of images."""
    return kind_of(array) in ("uint8", *DEEP_KINDS) and len(array.shape) >= 3
