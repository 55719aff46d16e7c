"""The names of a model's classes: what its library, its attributes or its checkpoint tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tllib_ancon.data.lists import names_in
from tllib_ancon.runtime.types import Options

NAMES = (
    *("class_names", "classes", "class_to_idx", "idx_to_class", "id2label", "label_names", "categories", "vocab"),
    *("names", "CLASSES", "labels"),
)
"""Attributes of models and entries of checkpoints that hold the names of classes: a list, or a dict with the labels."""

IMAGENET_CLASSES = 1000


def class_names_of(network: nn.Module, num_classes: int) -> list[str] | None:
    """Names of the K classes in the order of the labels, as a network or a part of it tells: transformers by
    ``id2label``, timm by the labels in its ``pretrained_cfg``, others by an attribute such as ``class_names``."""
    for module in network.modules():
        config = getattr(module, "config", None)
        names = _names_in(getattr(config, "id2label", None), num_classes)
        if names is not None and are_placeholders(names):
            names = None
        timm_metadata = getattr(module, "pretrained_cfg", None) or {}
        if names is None:
            names = _names_in(timm_metadata.get("label_names"), num_classes)
        if names is None:
            names = _names_among(vars(module), num_classes)
        if names is not None:
            return names
    return None


def names_of_checkpoint(path: str | Path, num_classes: int) -> list[str] | None:
    """Names of the K classes that a file of ``torch.save`` holds beside the weights."""
    try:
        content = torch.load(path, map_location="meta", weights_only=True)
    except Exception:  # loading the weights reports what is wrong with the file
        return None
    if not isinstance(content, Mapping):
        return None
    for entries in (content, content.get("meta"), content.get("hyper_parameters")):
        if isinstance(entries, Mapping):
            names = _names_among(entries, num_classes)
            if names is not None:
                return names
    return None


def imagenet_names(num_classes: int, names: Sequence[str] | None) -> list[list[str]]:
    """Lists of ImageNet's names for a model with its thousand classes; none for any other model."""
    if num_classes != IMAGENET_CLASSES or (names is not None and "tench" not in names[0].lower()):
        return []
    from timm.data.imagenet_info import ImageNetInfo  # timm starts slowly
    from torchvision.models import ResNet18_Weights

    imagenet: Any = ImageNetInfo("imagenet-1k")
    return [imagenet.label_names(), imagenet.label_descriptions(), ResNet18_Weights.DEFAULT.meta["categories"]]


def are_placeholders(names: Sequence[str]) -> bool:
    """Whether transformers made the names up, for classes without names."""
    return all(name == f"LABEL_{label}" for label, name in enumerate(names))


def _names_among(entries: Options, num_classes: int) -> list[str] | None:
    for entry in NAMES:
        names = _names_in(entries.get(entry), num_classes)
        if names is not None:
            return names
    return None


def _names_in(names: Any, num_classes: int) -> list[str] | None:
    """K names in the order of the labels, as :func:`~tllib_ancon.data.lists.names_in` reads them."""
    listed = names_in(names)
    if listed is None or len(listed) != num_classes:
        return None
    return listed
