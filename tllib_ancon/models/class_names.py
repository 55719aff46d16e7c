"""The names of a model's classes: what its library, its attributes or its checkpoint tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

NAMES = ("class_names", "classes", "class_to_idx", "idx_to_class", "id2label", "label_names", "categories", "vocab")
"""Attributes of models and entries of checkpoints that hold the names of classes: a list, or a dict with the labels."""

IMAGENET_CLASSES = 1000


def class_names_of(network: nn.Module, num_classes: int) -> list[str] | None:
    """Names of the K classes in the order of the labels, as a network or a part of it tells: transformers by
    ``id2label``, timm by the labels in its ``pretrained_cfg``, others by an attribute such as ``class_names``."""
    for part in network.modules():
        config = getattr(part, "config", None)
        if (names := names_in(getattr(config, "id2label", None), num_classes)) and not _are_placeholders(names):
            return names
        metadata = getattr(part, "pretrained_cfg", None) or {}
        if names := names_in(metadata.get("label_names"), num_classes):
            return names
        if names := names_among(vars(part), num_classes):
            return names
    return None


def names_of_checkpoint(path: str | Path, num_classes: int) -> list[str] | None:
    """Names of the K classes that a file of ``torch.save`` holds beside the weights."""
    try:
        content = torch.load(path, map_location="meta", weights_only=True)
    except Exception:  # who loads the weights tells what is wrong with the file
        return None
    entries = content if isinstance(content, Mapping) else {}
    nested = [entries[name] for name in ("meta", "hyper_parameters") if isinstance(entries.get(name), Mapping)]
    return next(filter(None, (names_among(each, num_classes) for each in (entries, *nested))), None)


def names_among(entries: Mapping[str, Any], num_classes: int) -> list[str] | None:
    return next(filter(None, (names_in(entries.get(name), num_classes) for name in NAMES)), None)


def names_in(names: Any, num_classes: int) -> list[str] | None:
    """K different names in the order of the labels, from a list, from label -> name or from name -> label."""
    if isinstance(names, Mapping):
        pairs = [(key, name) if isinstance(name, str) else (name, key) for key, name in names.items()]
        by_label = {str(label): name for label, name in pairs}
        listed = [by_label.get(str(label)) for label in range(num_classes)] if len(names) == num_classes else []
    else:
        listed = list(names) if isinstance(names, list | tuple) else []
    is_named = len(listed) == num_classes > 0 and all(isinstance(name, str) for name in listed)
    return [str(name) for name in listed] if is_named else None


def aliases_of(network: nn.Module, num_classes: int, names: Sequence[str] | None) -> list[list[str]]:
    """For each of the K classes every name that it may have: its own, the parts of one with commas, the descriptions of
    timm, and of a model with a thousand classes ImageNet's. Empty lists if nothing is known."""
    systems = [list(names or ())]
    for part in network.modules():
        metadata = getattr(part, "pretrained_cfg", None) or {}
        if described := metadata.get("label_descriptions"):
            systems.append(names_in(described, num_classes) or _by_label_name(metadata, num_classes))
    if num_classes == IMAGENET_CLASSES and (names is None or "tench" in names[0].lower()):
        systems += _imagenet()
    aliases: list[list[str]] = [[] for _ in range(num_classes)]
    for system in systems:
        for label, name in enumerate(system[:num_classes]):
            aliases[label] += [name, *(part.strip() for part in name.split(",") if "," in name)]
    return aliases


def orders_naturally(network: nn.Module) -> bool:
    """Whether a network is of timm, whose class folders are in natural order; those of others are in torchvision's."""
    return any(type(part).__module__.partition(".")[0] == "timm" for part in network.modules())


def orders_by_characters(network: nn.Module) -> bool:
    """Whether a network is one of torchvision or TLLib, whose class folders are in the order of the characters."""
    parts = {type(part).__module__ for part in network.modules()}
    return any(name.startswith(("torchvision.models.", "tllib.")) for name in parts) and not orders_naturally(network)


def _are_placeholders(names: Sequence[str]) -> bool:
    return all(name == f"LABEL_{label}" for label, name in enumerate(names))


def _by_label_name(metadata: Mapping[str, Any], num_classes: int) -> list[str]:
    names = names_in(metadata.get("label_names"), num_classes)
    described = metadata["label_descriptions"]
    return [str(described.get(name, name)) for name in names] if names and isinstance(described, Mapping) else []


def _imagenet() -> list[list[str]]:
    from timm.data.imagenet_info import ImageNetInfo  # timm starts slowly
    from torchvision.models import ResNet18_Weights

    imagenet: Any = ImageNetInfo("imagenet-1k")
    return [imagenet.label_names(), imagenet.label_descriptions(), ResNet18_Weights.DEFAULT.meta["categories"]]
