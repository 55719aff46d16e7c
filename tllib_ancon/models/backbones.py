"""Networks without their head: our small CNN, SHOT's LeNet, the toolkit's digit networks, torchvision's and timm's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tllib_ancon.errors import UserError, one_line
from tllib_ancon.models.any_network import described, evaluation_mode, probe_images
from tllib_ancon.models.networks import (
    TIMM,
    TORCHVISION,
    library_of,
    require_own_options,
    timm_network,
    torchvision_network,
)
from tllib_ancon.models.preprocessing import Preprocessing, preprocessing_of
from tllib_ancon.models.state_dicts import load_into, load_state_dict, without_prefix

if TYPE_CHECKING:
    from tllib_ancon.toolkit.interface import Toolkit

DIGIT_IMAGES = {"lenet": Preprocessing.centred(1, 28), "dtn": Preprocessing.centred(3, 32)}
WITH_SIDE_HEADS = ("googlenet", "inception_v3")


@dataclass(frozen=True)
class Backbone:
    """A feature extractor and what has to be known to use it.

    Attributes:
        network: images -> (B, C, H, W), or (B, C) if it ``pools``; has ``out_features``
        pools: its output is (B, C) already
        preprocessing: of the images that its weights were trained with
        pretrained: its weights come from a file or a model zoo
    """

    network: nn.Module
    pools: bool
    preprocessing: Preprocessing
    pretrained: bool

    def pool_layer(self, pool: bool = True) -> nn.Module | None:
        """For :class:`~tllib_ancon.models.classifier.BottleneckClassifier`: its default (None), or none to add
        (Identity) if the backbone pools or nothing is to ``pool``."""
        return None if pool and not self.pools else nn.Identity()


class SmallCNN(nn.Module):
    """Three strided convolutions with batch-norm for digit-sized images: (B, 3, H, W) -> (B, 128, H/8, W/8)."""

    out_features = 128

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*_block(3, 32, 5), *_block(32, 64, 3), *_block(64, 128, 3))

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images)
        return features


class ShotLeNet(nn.Module):
    """SHOT's LeNet for digits: two convolutions and dropout of whole channels, (B, 1, 28, 28) -> (B, 800).

    Source: Liang et al., "Do We Really Need to Access the Source Data?", ICML 2020, and its published code. TLLib's
    ``lenet`` has a further fully connected layer.
    """

    out_features = 800

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.ReLU()),
            *(nn.Conv2d(20, 50, 5), nn.Dropout2d(), nn.MaxPool2d(2), nn.ReLU()),
            nn.Flatten(),
        )

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images)
        return features


def _block(channels_in: int, channels_out: int, kernel: int) -> list[nn.Module]:
    convolution = nn.Conv2d(channels_in, channels_out, kernel, stride=2, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(channels_out), nn.ReLU(inplace=True)]


OWN_NETWORKS: Mapping[str, Callable[[], Backbone]] = {
    "small_cnn": lambda: Backbone(SmallCNN(), False, Preprocessing.centred(3), pretrained=False),
    "shot_lenet": lambda: Backbone(ShotLeNet(), True, Preprocessing.centred(1, 28), pretrained=False),
}


def create_backbone(
    name: str,
    pretrained: bool = True,
    weights_file: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
) -> Backbone:
    """Build a network without its head.

    Args:
        name: a name of :func:`~tllib_ancon.models.networks.names`
        pretrained: load the model zoo's ImageNet weights (torchvision's V1, timm's default) where the network has some
        weights_file: load these weights instead, .safetensors or .pth
        options: keyword arguments of the timm model, e.g. ``{"pad_type": "same"}``

    Raises:
        UserError: an unknown name or option, a network without a linear head; weights that cannot be had or do not fit
            (which tensors)
    """
    library, bare = library_of(name)
    require_own_options(name, library, options)
    from_zoo = pretrained and weights_file is None
    if library == TIMM:
        backbone = _timm_backbone(bare, from_zoo, options or {})
    elif library == TORCHVISION:
        backbone = _torchvision_backbone(bare, from_zoo)
    elif bare in DIGIT_IMAGES:
        backbone = _digit_network(bare)
    else:
        backbone = OWN_NETWORKS[bare]()
    if weights_file is None:
        return backbone
    state = without_prefix(load_state_dict(weights_file), backbone.network)
    load_into(backbone.network, state, source=str(weights_file), ignore=_classifier_prefixes(backbone.network))
    return replace(backbone, pretrained=True)


def toolkit_backbone(
    name: str,
    toolkit: Toolkit,
    pretrained: bool = True,
    weights_file: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
) -> Backbone:
    """:func:`create_backbone`, as the toolkit's own network where it has one of that name: TLLib's scripts can read its
    state dict then."""
    given = create_backbone(name, pretrained, weights_file, options)
    if name not in toolkit.backbone_names():
        return given
    network = toolkit.create_backbone(name)
    load_into(network, {**network.state_dict(), **given.network.state_dict()}, source=f"the network {name}")
    return replace(given, network=network, pools=bool(network.pools))


def _torchvision_backbone(name: str, pretrained: bool) -> Backbone:
    network = torchvision_network(name, pretrained, {"aux_logits": False} if name in WITH_SIDE_HEADS else {})
    linears = [
        (place, module.in_features) for place, module in network.named_modules() if isinstance(module, nn.Linear)
    ]
    if not linears:
        raise UserError(f"{name} has no linear head to replace; choose another network")
    place, width = linears[-1]
    network.set_submodule(place, nn.Identity())
    return _pooling_backbone(network, width, pretrained)


def _timm_backbone(name: str, pretrained: bool, options: Mapping[str, Any]) -> Backbone:
    import timm

    pretrained = pretrained and timm.is_model_pretrained(name)
    network = timm_network(name, pretrained, {**options, "num_classes": 0})
    return _pooling_backbone(network, _width(network, name, options), pretrained)


def _pooling_backbone(network: Any, width: int, pretrained: bool) -> Backbone:
    network.out_features = width
    preprocessing = preprocessing_of(network)
    assert preprocessing is not None, "networks of timm and torchvision have one"
    return Backbone(network, True, preprocessing, pretrained)


def _width(network: nn.Module, name: str, options: Mapping[str, Any]) -> int:
    """C of the features (B, C) that a backbone gives.

    Raises:
        UserError: options of the network make it give something else, or take other images than colour images
    """
    images = probe_images(network)
    try:
        with evaluation_mode(network), torch.no_grad():
            features = network(images)
    except Exception as error:  # any error can come out of a network with unusual options
        raise UserError(
            f"{name} with `arch_option` {dict(options)} cannot be called on images {tuple(images.shape)} "
            f"({one_line(error)})"
        ) from error
    match features:
        case Tensor(ndim=2):
            return features.shape[1]
    raise UserError(
        f"{name} with `arch_option` {dict(options)} gives {described(features)} where one vector an image is expected"
    )


def _digit_network(name: str) -> Backbone:
    from tllib_ancon import toolkit

    network = toolkit.find("tllib").create_backbone(name)
    return Backbone(network, True, DIGIT_IMAGES[name], pretrained=False)


def _classifier_prefixes(network: nn.Module) -> tuple[str, ...]:
    """Names of the ImageNet classifier, which a weight file holds and a backbone does not need."""
    names = getattr(network, "default_cfg", {}).get("classifier", "fc")
    names = (names,) if isinstance(names, str) else tuple(names)
    return tuple(f"{name}." for name in {*names, "fc", "head", "classifier"})
