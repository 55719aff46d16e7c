"""One factory of networks: our small CNN, SHOT's LeNet, TLLib's digit networks, torchvision's and timm's."""

from __future__ import annotations

import ast
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torchvision import models
from torchvision.models import resnet

from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.errors import UserError, one_line, unknown_name
from tllib_ancon.models.classifier import described, output_of, preprocessing_of, probe_images
from tllib_ancon.models.state_dicts import load_into, load_state_dict, without_prefix

if TYPE_CHECKING:
    from tllib_ancon.toolkit.toolkit import Toolkit

HEADLESS: dict[str, tuple[int, int | None]] = {
    "small_cnn": (3, None),
    "shot_lenet": (1, 28),
    "lenet": (1, 28),
    "dtn": (3, 32),
}
"""Networks that are a backbone alone, channels and side of their images, whose values are brought to [-1, 1]."""

RESNETS = [name for name in resnet.__all__ if name.islower()]
TIMM, TORCHVISION = "timm/", "torchvision/"
"""Prefixes that say which library a name is of. A bare name is torchvision's for its ResNets, as in TLLib, else timm's.
"""


class SmallCNN(nn.Sequential):
    """Three strided convolutions with batch-norm for digit-sized images: (B, 3, H, W) -> (B, 128, H/8, W/8)."""

    out_features = 128

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for channels_in, channels_out, kernel in ((3, 32, 5), (32, 64, 3), (64, 128, 3)):
            layers.append(nn.Conv2d(channels_in, channels_out, kernel, stride=2, padding=kernel // 2, bias=False))
            layers += [nn.BatchNorm2d(channels_out), nn.ReLU(inplace=True)]
        super().__init__(OrderedDict(layers=nn.Sequential(*layers)))


class ShotLeNet(nn.Sequential):
    """SHOT's LeNet for digits: two convolutions and dropout of whole channels, (B, 1, 28, 28) -> (B, 800).

    Source: Liang et al., "Do We Really Need to Access the Source Data?", ICML 2020, and its published code. TLLib's
    ``lenet`` has a further fully connected layer.
    """

    out_features = 800

    def __init__(self) -> None:
        first = nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.ReLU()
        second = nn.Conv2d(20, 50, 5), nn.Dropout2d(), nn.MaxPool2d(2), nn.ReLU()
        super().__init__(OrderedDict(layers=nn.Sequential(*first, *second, nn.Flatten())))


def names() -> list[str]:
    """Every network that is known on this machine; torchvision's and timm's may also be asked for by prefix."""
    of_timm, others = ([name for name in _names_in(library) if name not in RESNETS] for library in (TIMM, TORCHVISION))
    return [*HEADLESS, *RESNETS, *of_timm, *(TORCHVISION + name for name in others)]


def create_network(
    name: str, num_classes: int | None = None, pretrained: bool = False, options: Mapping[str, Any] | None = None
) -> nn.Module:
    """Build a whole network of torchvision or timm, images -> logits; K is by default that of its ImageNet weights,
    which are torchvision's V1 or timm's default."""
    library, bare = library_of(name)
    own = _own_options(name, library, options)
    if library is None:
        raise UserError(f"{name} has no ImageNet classifier: it is a backbone alone. Give a `checkpoint` of it")
    if num_classes is not None:
        own["num_classes"] = num_classes
    network: nn.Module = _from_zoo(library, bare, pretrained, own)
    return network


def create_backbone(
    name: str,
    pretrained: bool = True,
    weights_file: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    toolkit: Toolkit | None = None,
) -> Any:
    """Build a network without its head: images -> (B, C, H, W) or (B, C). It has ``out_features`` (C) and
    ``pretrained``, whether a file or a model zoo gave its weights.

    The zoo's are ImageNet weights (torchvision's V1, timm's default), where the network has some. Of a ``toolkit`` that
    has a network of this name its own is given: TLLib's scripts can read the state dict then.
    """
    library, bare = library_of(name)
    own = _own_options(name, library, options)
    zoo = pretrained and weights_file is None
    network = _headless(bare) if library is None else _without_head(library, bare, zoo, own)
    if weights_file is not None:
        state = without_prefix(load_state_dict(weights_file), network)
        unused = getattr(network, "default_cfg", {}).get("classifier", "fc")
        unused = {"fc", "head", "classifier", *([unused] if isinstance(unused, str) else unused)}
        load_into(network, state, str(weights_file), ignore=tuple(f"{part}." for part in unused))
        network.pretrained = True
    if toolkit is None or name not in toolkit.backbone_names():
        return network
    theirs = toolkit.create_backbone(name)
    load_into(theirs, {**theirs.state_dict(), **network.state_dict()}, source=f"the network {name}")
    theirs.pretrained, theirs.preprocessing = network.pretrained, preprocessing_of(network)
    return theirs


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """``["pad_type=same", "drop_rate=0.1"]`` -> ``{"pad_type": "same", "drop_rate": 0.1}``."""
    options = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UserError(f"`arch_option` {text!r}: expected KEY=VALUE, e.g. pad_type=same")
        try:
            options[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[key] = value
    return options


def library_of(name: str) -> tuple[str | None, str]:
    """The prefix of the library that has this network, None for one without a head, and its name there. The name of
    weights in timm may follow, as in ``resnet50.a1_in1k``."""
    if name in HEADLESS:
        return None, name
    import timm

    if ":" in name:
        raise UserError(f"`arch` {name} comes with its own weights and head; adapt, evaluate or predict with it alone")
    prefix, slash, bare = name.rpartition("/")
    library = prefix + slash or (TORCHVISION if name in RESNETS else TIMM)
    if library not in (TIMM, TORCHVISION):
        raise unknown_name("library of an architecture", library, (TIMM, TORCHVISION))
    if not (timm.is_model(bare) if library == TIMM else bare in _names_in(library)):
        valid = [library + other for other in _names_in(library)] if slash else names()
        raise unknown_name("architecture", name, valid)
    arch, dot, tag = bare.partition(".")
    if dot and bare not in (tagged := timm.list_pretrained(f"{arch}.*")):
        raise unknown_name(f"weights of {arch}", tag, [other.partition(".")[2] for other in tagged])
    return library, bare


def _names_in(library: str) -> list[str]:
    import timm

    return list(timm.list_models() if library == TIMM else models.list_models(module=models))


def _own_options(name: str, library: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options of the network itself: its weights come by other settings."""
    for option in options or {}:
        if library != TIMM:
            raise UserError(f"`arch_option` is for timm models; {name} takes none, got {option}")
        if option.startswith("pretrained") or option in ("num_classes", "cache_dir", "checkpoint_path"):
            raise UserError(f"`arch_option` {option} is not of the network {name}; weights go to `pretrained_weights`")
    return dict(options or {})


def _headless(name: str) -> Any:
    if own := {"small_cnn": SmallCNN, "shot_lenet": ShotLeNet}.get(name):
        network: Any = own()
    else:
        from tllib_ancon.toolkit.toolkit import find  # makes TLLib importable, which other networks do not ask for

        network = find("tllib").create_backbone(name)
    channels, side = HEADLESS[name]
    network.preprocessing = Preprocessing((0.5,) * channels, (0.5,) * channels, side)
    network.pretrained = False
    return network


def _from_zoo(library: str, name: str, pretrained: bool, options: Mapping[str, Any]) -> Any:
    try:
        if library == TIMM:
            import timm

            return timm.create_model(name, pretrained=pretrained, **options)
        known = models.get_model_weights(name)
        weights = getattr(known, "IMAGENET1K_V1", known.DEFAULT) if pretrained else None
        return models.get_model(name, weights=weights, **options)
    except Exception as error:  # downloads, damaged files and unusual options can lead to any error
        if isinstance(error, TypeError):
            why = f"`arch_option`: {name} does not accept {dict(options)} ({one_line(error)})"
        elif not pretrained:
            why = f"{name} cannot be built ({one_line(error)})"
        else:
            why = f"the pre-trained weights of {name} could not be loaded ({one_line(error)}); pass a file as "
            why += "`pretrained_weights`, or `scratch=True` to start without"
        raise UserError(why) from error


def _without_head(library: str, name: str, pretrained: bool, options: Mapping[str, Any]) -> Any:
    """A network of timm or torchvision, images -> (B, C)."""
    if library == TORCHVISION:
        side_heads = {"aux_logits": False} if name in ("googlenet", "inception_v3") else {}
        network = _from_zoo(library, name, pretrained, side_heads)
        linears = [place for place, module in network.named_modules() if isinstance(module, nn.Linear)]
        if not linears:
            raise UserError(f"{name} has no linear head to replace; choose another network")
        network.out_features = network.get_submodule(linears[-1]).in_features
        network.set_submodule(linears[-1], nn.Identity())
    else:
        import timm

        pretrained = pretrained and timm.is_model_pretrained(name)
        network = _from_zoo(library, name, pretrained, {**options, "num_classes": 0})
        with_options = f"{name} with `arch_option` {dict(options)}"
        features = output_of(network, probe_images(network), f": {with_options}")
        if not isinstance(features, Tensor) or features.ndim != 2:
            raise UserError(f"{with_options} gives {described(features)} where one vector an image is expected")
        network.out_features = features.shape[1]
    network.pretrained = pretrained
    return network
