"""The toolkits' own networks."""

from __future__ import annotations

from types import ModuleType
from urllib.error import URLError

from torch import nn

from tllib_ancon.errors import UserError, unknown_name

DIGIT_NETWORKS = ("dtn", "lenet")
"""TLLib's networks for digits; they return flat features and have no pre-trained weights."""


def network_names(models: ModuleType) -> list[str]:
    """The functions of a toolkit's ``vision.models`` that build a network."""
    return sorted(name for name, value in vars(models).items() if name.islower() and _is_builder(name, value))


def create_network(models: ModuleType, name: str, pretrained: bool) -> nn.Module:
    """Build a network of a toolkit's ``vision.models``; see :meth:`Toolkit.create_backbone`."""
    if name not in network_names(models):
        raise unknown_name(f"network of {models.__name__}", name, network_names(models))
    if pretrained and name in DIGIT_NETWORKS:
        raise UserError(f"there are no pre-trained weights for {name}; pass `scratch=True`")
    try:
        network: nn.Module = getattr(models, name)(pretrained=pretrained)
        return network
    except URLError as error:
        raise UserError(
            f"the pre-trained weights of {name} cannot be downloaded ({error.reason}); put the file into "
            "torch's hub/checkpoints folder, or pass `scratch=True`"
        ) from error


def _is_builder(name: str, value: object) -> bool:
    return not name.startswith("_") and callable(value)
