"""Networks by name: our small CNN, the toolkit's digit networks, those of torchvision and of timm."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tllib_ancon.errors import UserError, one_line, unknown_name
from tllib_ancon.models.any_network import described, evaluation_mode, probe_images
from tllib_ancon.models.classifier import require_modest_layer
from tllib_ancon.models.preprocessing import Preprocessing, preprocessing_of
from tllib_ancon.models.state_dicts import load_into, load_state_dict, without_prefix

if TYPE_CHECKING:
    from tllib_ancon.toolkit.interface import Toolkit

SMALL_CNN = "small_cnn"
DIGIT_IMAGES = {"lenet": Preprocessing.centred(1, 28), "dtn": Preprocessing.centred(3, 32)}
TIMM, TORCHVISION = "timm/", "torchvision/"
"""Prefixes that say which library a name is of. A bare name is torchvision's for its ResNets, as in TLLib, else timm's.
"""

WITH_SIDE_HEADS = ("googlenet", "inception_v3")
WITHOUT_DOWNLOAD = "pass a file as `pretrained_weights`, or `scratch=True` to start without"
SECONDS = 5
"""To wait for an answer of the hub that has timm's weights."""

TYPICAL_WIDTH = 2048
"""Of the features before a head, for the limit on the number of classes."""

RESERVED_OPTIONS = (
    "cache_dir",
    "checkpoint_path",
    "num_classes",
    "pretrained",
    "pretrained_cfg",
    "pretrained_cfg_overlay",
    "pretrained_filter_fn",
    "pretrained_model_args",
    "pretrained_strict",
)
"""What timm's factory takes beside the options of the network: weights, files and addresses among them."""


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


def _block(channels_in: int, channels_out: int, kernel: int) -> list[nn.Module]:
    convolution = nn.Conv2d(channels_in, channels_out, kernel, stride=2, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(channels_out), nn.ReLU(inplace=True)]


def names() -> list[str]:
    """Every network that is known on this machine; torchvision's and timm's may also be asked for by prefix."""
    import timm

    resnets = torchvision_resnets()
    of_timm = [name for name in timm.list_models() if name not in resnets]
    of_torchvision = [TORCHVISION + name for name in _torchvision_names() if name not in resnets]
    return [SMALL_CNN, *DIGIT_IMAGES, *resnets, *of_timm, *of_torchvision]


def create_backbone(
    name: str,
    pretrained: bool = True,
    weights_file: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
) -> Backbone:
    """Build a network without its head.

    Args:
        name: see :func:`names`
        pretrained: load the model zoo's ImageNet weights (torchvision's V1, timm's default) where the network has some
        weights_file: load these weights instead, .safetensors or .pth
        options: keyword arguments of the timm model, e.g. ``{"pad_type": "same"}``

    Raises:
        UserError: an unknown name or option, a network without a linear head; weights that cannot be had or do not fit
            (which tensors)
    """
    library, bare = _library_of(name)
    _require_options_of_a_network(name, library, options)
    from_zoo = pretrained and weights_file is None
    if library == TIMM:
        backbone = _timm_backbone(bare, from_zoo, options or {})
    elif library == TORCHVISION:
        backbone = _torchvision_backbone(bare, from_zoo)
    elif bare in DIGIT_IMAGES:
        backbone = _digit_network(bare)
    else:
        backbone = Backbone(SmallCNN(), False, Preprocessing.centred(3), pretrained=False)
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


def create_network(
    name: str, num_classes: int | None = None, pretrained: bool = False, options: Mapping[str, Any] | None = None
) -> nn.Module:
    """Build a whole network of torchvision or timm, images -> logits.

    Args:
        name: see :func:`names`
        num_classes: K. Default: that of its ImageNet weights
        pretrained: load the model zoo's weights (torchvision's V1, timm's default)
        options: keyword arguments of the timm model

    Raises:
        UserError: an unknown name or option, a network without a head of its own; weights that cannot be had
    """
    library, bare = _library_of(name)
    _require_options_of_a_network(name, library, options)
    if library is None:
        raise UserError(f"{name} has no ImageNet classifier: it is a backbone alone")
    require_modest_layer(TYPICAL_WIDTH, num_classes or 0, "num_classes")
    build = _timm_network if library == TIMM else _torchvision_network
    return build(bare, pretrained, {**(options or {}), **({} if num_classes is None else {"num_classes": num_classes})})


def has_own_head(name: str) -> bool:
    """Whether :func:`create_network` knows this name.

    Raises:
        UserError: no network has this name
    """
    return _library_of(name)[0] is not None


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


def torchvision_resnets() -> list[str]:
    """Names that TLLib takes from torchvision rather than from timm."""
    from torchvision.models import resnet

    return [name for name in resnet.__all__ if name.islower()]


def _torchvision_names() -> list[str]:
    from torchvision import models

    return list(models.list_models(module=models))


def _library_of(name: str) -> tuple[str | None, str]:
    """The prefix of the library that has this network, None for one without a head, and its name there."""
    import timm

    if name == SMALL_CNN or name in DIGIT_IMAGES:
        return None, name
    library, _, bare = name.rpartition("/")
    library = f"{library}/" if library else TORCHVISION if name in torchvision_resnets() else TIMM
    if library == TIMM and timm.is_model(bare):
        _require_tag(bare)
        return library, bare
    if library == TORCHVISION and bare in _torchvision_names():
        return library, bare
    if "/" not in name:
        raise unknown_name("architecture", name, names())
    if library not in (TIMM, TORCHVISION):
        raise unknown_name("library of an architecture", library, (TIMM, TORCHVISION))
    known = timm.list_models() if library == TIMM else _torchvision_names()
    raise unknown_name("architecture", name, [library + other for other in known])


def _require_tag(name: str) -> None:
    """Refuse a name of timm whose second part, as in ``resnet50.a1_in1k``, is none of its weights."""
    import timm

    arch, dot, tag = name.partition(".")
    if dot and name not in (known := timm.list_pretrained(f"{arch}.*")):
        raise unknown_name(f"weights of {arch}", tag, [other.partition(".")[2] for other in known])


def _require_options_of_a_network(name: str, library: str | None, options: Mapping[str, Any] | None) -> None:
    """Refuse options that are not of the network itself: its weights come by other settings, and no option may name a
    file or an address."""
    for option, value in (options or {}).items():
        if library != TIMM:
            raise UserError(f"`arch_option` is for timm models; {name} takes none, got {option}")
        if option in RESERVED_OPTIONS:
            raise UserError(f"`arch_option` {option} is not of the network {name}; weights go to `pretrained_weights`")
        if _names_a_place(value):
            raise UserError(
                f"`arch_option` {option}: {value!r} names a file or an address; weights go to `pretrained_weights`"
            )


def _names_a_place(value: object) -> bool:
    if isinstance(value, str):
        return any(sign in value for sign in "/\\:.")
    if isinstance(value, Mapping):
        return any(map(_names_a_place, value.values()))
    return isinstance(value, list | tuple | set) and any(map(_names_a_place, value))


def _torchvision_network(name: str, pretrained: bool, options: Mapping[str, Any]) -> nn.Module:
    from torchvision import models

    weights = None
    if pretrained:
        known = models.get_model_weights(name)
        weights = getattr(known, "IMAGENET1K_V1", known.DEFAULT)
    return _from_zoo(name, pretrained, lambda: models.get_model(name, weights=weights, **options))


def _torchvision_backbone(name: str, pretrained: bool) -> Backbone:
    network = _torchvision_network(name, pretrained, {"aux_logits": False} if name in WITH_SIDE_HEADS else {})
    linears = [
        (place, module.in_features) for place, module in network.named_modules() if isinstance(module, nn.Linear)
    ]
    if not linears:
        raise UserError(f"{name} has no linear head to replace; choose another network")
    place, width = linears[-1]
    network.set_submodule(place, nn.Identity())
    return _pooling_backbone(network, width, pretrained)


def _timm_network(name: str, pretrained: bool, options: Mapping[str, Any]) -> nn.Module:
    import timm

    if pretrained:
        _require_reachable_weights(name)
    try:
        return _from_zoo(name, pretrained, lambda: timm.create_model(name, pretrained=pretrained, **options))
    except TypeError as error:
        raise UserError(f"`arch_option`: {name} does not accept {dict(options)} ({one_line(error)})") from error


def _timm_backbone(name: str, pretrained: bool, options: Mapping[str, Any]) -> Backbone:
    import timm

    pretrained = pretrained and timm.is_model_pretrained(name)
    network = _timm_network(name, pretrained, {**options, "num_classes": 0})
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


def _from_zoo(name: str, pretrained: bool, build: Callable[[], nn.Module]) -> nn.Module:
    try:
        return build()
    except TypeError:
        raise
    except Exception as error:  # downloads, damaged files and unusual options can lead to any error
        if not pretrained:
            raise UserError(f"{name} cannot be built ({one_line(error)})") from error
        raise UserError(
            f"the pre-trained weights of {name} could not be loaded ({one_line(error)}); {WITHOUT_DOWNLOAD}"
        ) from error


def _require_reachable_weights(name: str) -> None:
    """Ask once whether timm's weights can be downloaded: its own download tries for about 50 seconds.

    Raises:
        UserError: they are not in the cache, and the hub does not answer
    """
    import timm
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError

    config = timm.get_pretrained_cfg(name)
    if config is None or not config.hf_hub_id:
        return
    files = [config.hf_hub_filename] if config.hf_hub_filename else ["model.safetensors", "pytorch_model.bin"]
    if any(isinstance(try_to_load_from_cache(config.hf_hub_id, file), str) for file in files):
        return
    try:
        get_hf_file_metadata(hf_hub_url(config.hf_hub_id, files[0]), timeout=SECONDS)
    except HfHubHTTPError:  # it answers; timm tries the other files
        return
    except Exception as error:  # the network's errors have no class in common
        raise UserError(
            f"the pre-trained weights of {name} are not in the cache, and {config.hf_hub_id} cannot be reached "
            f"({one_line(error)}); {WITHOUT_DOWNLOAD}"
        ) from error


def _classifier_prefixes(network: nn.Module) -> tuple[str, ...]:
    """Names of the ImageNet classifier, which a weight file holds and a backbone does not need."""
    names = getattr(network, "default_cfg", {}).get("classifier", "fc")
    names = (names,) if isinstance(names, str) else tuple(names)
    return tuple(f"{name}." for name in {*names, "fc", "head", "classifier"})
