"""The classifier a network was pre-trained as on ImageNet, as a source model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from tllib_ancon.errors import UserError, unknown_name
from tllib_ancon.models.backbones import torchvision_resnets
from tllib_ancon.models.classifier import BottleneckClassifier

IMAGENET = "imagenet"
"""The value of ``--checkpoint`` that asks for this start."""


def imagenet_classifier(
    name: str,
    pretrained: bool = True,
    weights_file: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
) -> BottleneckClassifier:
    """A network of torchvision or timm with its own ImageNet head: backbone, no bottleneck, head.

    Its logits are those of the whole network. Every part learns at the full rate.

    Args:
        name: a torchvision ResNet or a timm model
        pretrained: load the model zoo's weights (torchvision's V1, timm's default)
        weights_file: load these weights instead, of the whole network; .safetensors or .pth
        options: keyword arguments of the timm model

    Raises:
        UserError: an unknown name, no such head, weights that cannot be had or do not fit (which tensors)
    """
    from tllib_ancon.models.checkpoints import load_state_dict
    from tllib_ancon.models.weights import load_into

    network = _network(name, pretrained and weights_file is None, dict(options or {}))
    if weights_file is not None:
        load_into(network, load_state_dict(weights_file), source=str(weights_file))
    head = _take_head(network)
    if not isinstance(head, nn.Linear):
        raise UserError(f"{name} has no linear ImageNet head to start from; give a --checkpoint FILE")
    return BottleneckClassifier(
        network, head.out_features, nn.Identity(), head, head.in_features, nn.Identity(), finetune=False
    )


def _network(name: str, pretrained: bool, options: dict[str, Any]) -> nn.Module:
    import timm
    from torchvision import models

    try:
        if name in torchvision_resnets():
            return models.get_model(name, weights=models.get_model_weights(name).IMAGENET1K_V1 if pretrained else None)
        if timm.is_model(name):
            return timm.create_model(name, pretrained=pretrained, **options)
    except (OSError, RuntimeError, TypeError) as error:
        raise UserError(
            f"{name} could not be built with its ImageNet weights ({error}); pass --pretrained-weights FILE"
        ) from error
    raise unknown_name("network with an ImageNet head", name, [*torchvision_resnets(), *timm.list_models()])


def _take_head(network: nn.Module) -> nn.Module:
    if hasattr(network, "reset_classifier"):
        head = network.get_classifier()
        network.reset_classifier(0)
    else:
        head, network.fc = network.fc, nn.Identity()
    return head
