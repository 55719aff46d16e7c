"""The names of a model's classes, as its library or an attribute has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn


def class_names_of(network: nn.Module, num_classes: int) -> list[str] | None:
    """Names of the K classes in the order of the labels, as a network or a part of it has them: transformers in
    ``config.id2label``, timm in ``pretrained_cfg``, others in an attribute ``class_names``."""
    for module in network.modules():
        metadata = getattr(module, "pretrained_cfg", None) or {}
        for names in (
            getattr(getattr(module, "config", None), "id2label", None),
            metadata.get("label_names"),
            getattr(module, "class_names", None),
        ):
            if _are_names(names, num_classes):
                return _in_order(names)
    return None


def _in_order(names: Any) -> list[str]:
    if isinstance(names, Mapping):
        return [names[label] for label in sorted(names)]
    return [*names]


def _are_names(names: Any, num_classes: int) -> bool:
    """Whether it is a list or a dict of K names that transformers did not make up."""
    if not isinstance(names, Mapping | list | tuple) or len(names) != num_classes:
        return False
    listed = _in_order(names)
    made_up = [f"LABEL_{label}" for label in range(num_classes)]
    return listed != made_up and all(isinstance(name, str) for name in listed)
