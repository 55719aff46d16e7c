"""Backbones by name: our small CNN, the toolkit's digit networks, torchvision's ResNets and every timm model."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tllib_ancon.data.transforms import IMAGENET_MEAN, IMAGENET_STD
from tllib_ancon.errors import UserError, unknown_name

SMALL_CNN = "small_cnn"
DIGIT_NETWORKS = ("lenet", "dtn")


@dataclass(frozen=True)
class Backbone:
    """A feature extractor and what has to be known to use it.

    Attributes:
        network: images -> (B, C, H, W), or (B, C) if it ``pools``; has ``out_features``
        pools: its output is (B, C) already
        mean, std: normalisation that its weights were trained with
        pretrained: its weights come from a file or a model zoo
    """

    network: nn.Module
    pools: bool
    mean: Sequence[float]
    std: Sequence[float]
    pretrained: bool

    def pool_layer(self) -> nn.Module | None:
        """For :class:`~tllib_ancon.models.classifier.Classifier`: none to add (Identity), or its default (None)."""
        return nn.Identity() if self.pools else None


class SmallCNN(nn.Module):
    """Three strided convolutions with batch-norm for digit-sized images: (B, 3, H, W) -> (B, 128, H/8, W/8)."""

    out_features = 128

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*_block(3, 32, 5), *_block(32, 64, 3), *_block(64, 128, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


def names() -> list[str]:
    """Every backbone that :func:`create_backbone` knows on this machine."""
    import timm

    return [SMALL_CNN, *DIGIT_NETWORKS, *torchvision_resnets(), *timm.list_models()]


def create_backbone(
    name: str,
    pretrained: bool = True,
    weights_file: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
) -> Backbone:
    """Build a backbone.

    Args:
        name: see :func:`names`
        pretrained: load the model zoo's ImageNet weights (torchvision's V1, timm's default) where the network has some
        weights_file: load these weights instead, .safetensors or .pth
        options: keyword arguments of the timm model, e.g. ``{"pad_type": "same"}``

    Raises:
        UserError: an unknown name or option; weights that cannot be had or do not fit (which tensors)
    """
    options = dict(options or {})
    if name == SMALL_CNN:
        backbone = Backbone(SmallCNN(), False, (0.5,) * 3, (0.5,) * 3, pretrained=False)
    elif name in DIGIT_NETWORKS:
        backbone = _digit_network(name)
    elif name in torchvision_resnets():
        backbone = _torchvision_resnet(name, pretrained and weights_file is None)
    else:
        backbone = _timm_model(name, pretrained and weights_file is None, options)
        options = {}
    if options:
        raise UserError(f"--arch-option is for timm models; {name} takes none, got {', '.join(options)}")
    if weights_file is not None:
        _load_weights(backbone.network, Path(weights_file))
        backbone = Backbone(backbone.network, backbone.pools, backbone.mean, backbone.std, pretrained=True)
    return backbone


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """``["pad_type=same", "drop_rate=0.1"]`` -> ``{"pad_type": "same", "drop_rate": 0.1}``.

    Raises:
        UserError: an entry without "="
    """
    options = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UserError(f"--arch-option {text!r}: expected KEY=VALUE, e.g. pad_type=same")
        try:
            options[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[key] = value
    return options


def _block(channels_in: int, channels_out: int, kernel: int) -> list[nn.Module]:
    convolution = nn.Conv2d(channels_in, channels_out, kernel, stride=2, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(channels_out), nn.ReLU(inplace=True)]


def torchvision_resnets() -> list[str]:
    """Names that TLLib takes from torchvision rather than from timm."""
    from torchvision.models import resnet

    return [name for name in resnet.__all__ if name.islower()]


def _torchvision_resnet(name: str, pretrained: bool) -> Backbone:
    from torchvision import models

    weights = models.get_model_weights(name).IMAGENET1K_V1 if pretrained else None
    network = _from_zoo(name, lambda: models.get_model(name, weights=weights))
    network.out_features = network.fc.in_features
    network.fc = nn.Identity()
    return Backbone(network, True, IMAGENET_MEAN, IMAGENET_STD, pretrained)


def _timm_model(name: str, pretrained: bool, options: dict[str, Any]) -> Backbone:
    import timm
    from timm.data import resolve_model_data_config

    if not timm.is_model(name):
        raise unknown_name("architecture", name, names())
    pretrained = pretrained and timm.is_model_pretrained(name)
    try:
        network = _from_zoo(name, lambda: timm.create_model(name, pretrained=pretrained, num_classes=0, **options))
    except TypeError as error:
        raise UserError(f"--arch-option: {name} does not accept {options} ({error})") from error
    network.out_features = network.num_features
    config = resolve_model_data_config(network)
    return Backbone(network, True, config["mean"], config["std"], pretrained)


def _digit_network(name: str) -> Backbone:
    from tllib_ancon import toolkit

    network = toolkit.find("tllib").create_backbone(name)
    channels = 1 if name == "lenet" else 3
    return Backbone(network, True, (0.5,) * channels, (0.5,) * channels, pretrained=False)


def _from_zoo(name: str, build: Any) -> Any:
    try:
        return build()
    except (OSError, RuntimeError) as error:
        raise UserError(
            f"the pre-trained weights of {name} could not be downloaded ({error}); pass --pretrained-weights FILE, or "
            "--scratch to start without"
        ) from error


def _load_weights(network: nn.Module, path: Path) -> None:
    from tllib_ancon.models.checkpoints import load_state_dict
    from tllib_ancon.models.weights import load_into

    load_into(network, load_state_dict(path), source=str(path), ignore=_classifier_prefixes(network))


def _classifier_prefixes(network: nn.Module) -> tuple[str, ...]:
    """Names of the ImageNet classifier, which a weight file holds and a backbone does not need."""
    names = getattr(network, "default_cfg", {}).get("classifier", "fc")
    names = (names,) if isinstance(names, str) else tuple(names)
    return tuple(f"{name}." for name in {*names, "fc", "head", "classifier"})
