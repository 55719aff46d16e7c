"""One factory of networks by name, with random weights or those of a model zoo.

Names are those of our small CNN, SHOT's LeNet, TLLib's digit networks, torchvision and timm.
"""

from __future__ import annotations

import ast
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.models.checkpoints import load_into, load_state_dict, without_prefix
from tllib_ancon.models.preprocessing import USUAL_CROP, preprocessing_of
from tllib_ancon.runtime.errors import BadModel, BadSetting, UserError, named, one_line, unknown_name
from tllib_ancon.runtime.types import Options

if TYPE_CHECKING:
    from tllib_ancon.toolkit.toolkit import Toolkit

HEADLESS = {
    "small_cnn": (3, 0),
    "shot_lenet": (1, 28),
    "lenet": (1, 28),
    "dtn": (3, 32),
}
"""Networks that are a backbone alone: channels and side of their images, 0 if any will do. Options are brought to
[-1, 1]."""

TIMM = "timm/"
TORCHVISION = "torchvision/"
"""Prefixes that say which library a name is of. A bare name is torchvision's for its ResNets, as in TLLib, else timm's.
"""

RESNETS = (
    *("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"),
    *("resnext50_32x4d", "resnext101_32x8d", "resnext101_64x4d", "wide_resnet50_2", "wide_resnet101_2"),
)
"""Names that are torchvision's where they are bare."""


NOT_OF_A_NETWORK = ("weights", "features_only", "cache_dir", "checkpoint_path")
"""Options of builders that do not say what a network computes, and that settings here do."""


class _SmallCNN(nn.Sequential):
    """Three strided convolutions with batch-norm for digit-sized images: (B, 3, H, W) -> (B, 128, H/8, W/8)."""

    out_features = 128

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for channels_in, channels_out, kernel in ((3, 32, 5), (32, 64, 3), (64, 128, 3)):
            layers.append(nn.Conv2d(channels_in, channels_out, kernel, stride=2, padding=kernel // 2, bias=False))
            layers += [nn.BatchNorm2d(channels_out), nn.ReLU(inplace=True)]
        super().__init__(OrderedDict(layers=nn.Sequential(*layers)))


class _ShotLeNet(nn.Sequential):
    """SHOT's LeNet for digits: two convolutions and dropout of whole channels, (B, 1, 28, 28) -> (B, 800).

    Source: Liang et al., "Do We Really Need to Access the Source Data?", ICML 2020, and its published code. TLLib's
    ``lenet`` has a further fully connected layer.
    """

    out_features = 800

    def __init__(self) -> None:
        layers = nn.Sequential(
            nn.Conv2d(1, 20, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(20, 50, 5),
            nn.Dropout2d(),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
        )
        super().__init__(OrderedDict(layers=layers))


def names() -> list[str]:
    """All names of networks, those of torchvision with its prefix where timm may have the same."""
    of_timm = [name for name in _names_in(TIMM) if name not in RESNETS]
    of_torchvision = [TORCHVISION + name for name in _names_in(TORCHVISION) if name not in RESNETS]
    return [*HEADLESS, *RESNETS, *of_timm, *of_torchvision]


def create_network(
    name: str, num_classes: int | None = None, pretrained: bool = False, options: Options | None = None
) -> nn.Module:
    """Build a whole network of torchvision or timm, images -> logits; K is by default that of its ImageNet weights."""
    library, bare_name = _library_of(name)
    if library is None:
        raise BadModel(
            f"{name} is a backbone without a classifier of its own",
            f"give a {named('checkpoint')} of TLLib's scripts, dalib, the AnCon authors or this package",
        )
    arguments = dict(options or {})
    if num_classes is not None:
        arguments["num_classes"] = num_classes
    network: nn.Module = _built(library, bare_name, pretrained, arguments)
    return network


def create_backbone(
    name: str,
    pretrained: bool = True,
    weights_file: str | Path | None = None,
    options: Options | None = None,
    toolkit: Toolkit | None = None,
) -> Any:
    """Build a network without its head, with ``out_features`` (C) and ``pretrained``, whether it has trained weights:
    images -> (B, C, H, W) or (B, C). A ``toolkit`` gives its own network of this name, for TLLib's scripts."""
    library, bare_name = _library_of(name)
    has_zoo_weights = pretrained and weights_file is None and library is not None
    arguments = dict(options or {})
    if library == TIMM:
        arguments["num_classes"] = 0
    elif bare_name in ("googlenet", "inception_v3"):
        arguments.setdefault("aux_logits", False)  # else they return tuples in training mode
    backbone = _built(library, bare_name, has_zoo_weights, arguments)
    if library == TIMM:
        backbone.out_features = backbone.head_hidden_size
        declared = preprocessing_of(backbone)
        if declared is not None:
            backbone.preprocessing = replace(declared, crop_fraction=USUAL_CROP)  # as TLLib trains it
    elif library == TORCHVISION:
        _remove_head(backbone, name)
    if weights_file is not None:
        _load_backbone(backbone, weights_file)
    backbone.pretrained = has_zoo_weights or weights_file is not None
    if toolkit is None or name not in toolkit.backbone_names():
        return backbone
    of_toolkit = toolkit.create_backbone(name)
    load_into(of_toolkit, {**of_toolkit.state_dict(), **backbone.state_dict()}, source=f"the network {name}")
    of_toolkit.pretrained = backbone.pretrained
    of_toolkit.preprocessing = preprocessing_of(backbone)
    return of_toolkit


def _remove_head(network: Any, name: str) -> None:
    """Put an identity in the place of the last linear layer of a network of torchvision."""
    linear_names = [module_name for module_name, module in network.named_modules() if isinstance(module, nn.Linear)]
    if not linear_names:
        raise BadModel(f"{name} has no linear head to replace", "choose another network")
    network.out_features = network.get_submodule(linear_names[-1]).in_features
    network.set_submodule(linear_names[-1], nn.Identity())


def _load_backbone(backbone: nn.Module, weights_file: str | Path) -> None:
    """Load the weights of a whole network without those of its head."""
    state = without_prefix(load_state_dict(weights_file), backbone)
    load_into(backbone, state, str(weights_file), ignore=("fc.", "head.", "classifier."))


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """``["pad_type=same", "drop_rate=0.1"]`` -> ``{"pad_type": "same", "drop_rate": 0.1}``."""
    options = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise BadSetting(
                f"{named('arch_option')} {text!r}: expected KEY=VALUE, e.g. pad_type=same", setting="arch_option"
            )
        try:
            options[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[key] = value
    return options


def _library_of(name: str) -> tuple[str | None, str]:
    """The prefix of the library that has this network, None for one without a head, and its name there."""
    if name in HEADLESS:
        return None, name
    library = TIMM
    if name.startswith(TORCHVISION) or name in RESNETS:
        library = TORCHVISION
    bare_name = name.removeprefix(library)
    if bare_name.partition(".")[0] not in _names_in(library):
        raise unknown_name("architecture", name, names())
    return library, bare_name


def _names_in(library: str) -> list[str]:
    if library == TORCHVISION:
        from torchvision import models

        return list(models.list_models(module=models))
    import timm  # timm starts slowly

    return list(timm.list_models())


def _built(library: str | None, name: str, pretrained: bool, options: Options) -> Any:
    """A network of a library, or a backbone that is no library's, with the options of its builder."""
    for option in options:
        if option.startswith("pretrained") or option in NOT_OF_A_NETWORK:
            raise BadSetting(
                f"{named('arch_option')} {option} is not of the network {name}",
                f"pass weights as {named('checkpoint')}, or to pretrain as {named('pretrained_weights')}",
                setting="arch_option",
            )
    try:
        if library is None:
            return _headless(name, options)
        if library == TORCHVISION:
            return _of_torchvision(name, pretrained, options)
        import timm

        return timm.create_model(name, pretrained=pretrained, **options)
    except UserError:
        raise
    except Exception as error:  # downloads, damaged files and unknown options can lead to any error
        raise BadModel(
            f"{name} cannot be built ({one_line(error)})",
            f"give an {named('arch_option')} that it has, and weights as a file: {named('checkpoint')}, to pretrain "
            f"{named('pretrained_weights')}, or {named('scratch', True)} for none",
        ) from error


def _headless(name: str, options: Options) -> Any:
    if name == "small_cnn":
        backbone: Any = _SmallCNN(**options)
    elif name == "shot_lenet":
        backbone = _ShotLeNet(**options)
    else:
        from tllib_ancon.toolkit.toolkit import find  # makes TLLib importable, which other networks do not ask for

        backbone = find("tllib").create_backbone(name, **options)
    channels, side = HEADLESS[name]
    backbone.preprocessing = Preprocessing((0.5,) * channels, (0.5,) * channels, side)
    return backbone


def _of_torchvision(name: str, pretrained: bool, options: Options) -> Any:
    from torchvision import models

    weights = None
    if pretrained:
        versions = models.get_model_weights(name)
        weights = getattr(versions, "IMAGENET1K_V1", versions.DEFAULT)
    return models.get_model(name, weights=weights, **options)
