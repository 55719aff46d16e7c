"""The names of a model's classes: what its library, its attributes or its checkpoint tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

NAMES = ("class_names", "classes", "class_to_idx", "idx_to_class", "id2label", "label_names", "categories")
"""Attributes of models and entries of checkpoints that hold the names of classes: a list, or a dict with the labels."""

IMAGENET_CLASSES = 1000


def class_names_of(network: nn.Module, num_classes: int) -> list[str] | None:
    """Names of the K classes in the order of the labels, as a network or a part of it tells: transformers by
    ``id2label``, timm by the labels in its ``pretrained_cfg``, others by an attribute such as ``class_names``."""
    for module in network.modules():
        by_library = (getattr(module, "config", None), getattr(module, "pretrained_cfg", None))
        for entries in (*by_library, vars(module)):
            names = _first_names(_entries_of(entries), num_classes)
            if names is not None:
                return names
    return None


def names_of_checkpoint(path: str | Path, num_classes: int) -> list[str] | None:
    """Names of the K classes that a file of ``torch.save`` holds beside the weights."""
    try:
        content = torch.load(path, map_location="meta", weights_only=True)
    except Exception:  # loading the weights reports what is wrong with the file
        return None
    return _first_names(_entries_of(content), num_classes)


def imagenet_names(num_classes: int, names: Sequence[str] | None) -> list[list[str]]:
    """Lists of ImageNet's names for a model with its thousand classes; none for any other model."""
    if num_classes != IMAGENET_CLASSES or (names is not None and "tench" not in names[0].lower()):
        return []
    from timm.data.imagenet_info import ImageNetInfo  # timm starts slowly
    from torchvision.models import ResNet18_Weights

    imagenet: Any = ImageNetInfo("imagenet-1k")
    return [imagenet.label_names(), imagenet.label_descriptions(), ResNet18_Weights.DEFAULT.meta["categories"]]


def _entries_of(holder: Any) -> list[Any]:
    """What a dict or an object holds by one of the :data:`NAMES`."""
    if not isinstance(holder, Mapping):
        return [getattr(holder, name, None) for name in NAMES]
    return [holder.get(name) for name in NAMES]


def _first_names(candidates: Iterable[Any], num_classes: int) -> list[str] | None:
    """The first of some values that are K names, but for those that transformers makes up."""
    made_up = [f"LABEL_{label}" for label in range(num_classes)]
    for candidate in candidates:
        names = _names_in(candidate)
        if names not in (None, made_up) and len(names) == num_classes:
            return names
    return None


def _names_in(names: Any) -> list[str] | None:
    """Names of classes in the order of the labels, from a list, from label -> name or from name -> label; None for
    anything else."""
    if isinstance(names, Mapping):
        by_label = {}  # of label -> name, or of name -> label
        for key, value in names.items():
            if isinstance(value, str):
                by_label[str(key)] = value
            else:
                by_label[str(value)] = key
        listed = [by_label.get(str(label)) for label in range(len(names))]
    elif isinstance(names, list | tuple):
        listed = [*names]
    else:
        return None
    if not listed or not all(isinstance(name, str) for name in listed):
        return None
    return [str(name) for name in listed]
