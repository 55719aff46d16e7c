"""One factory of networks: by name, with the weights of a checkpoint, by a function of yours, or by a recipe.

Names are those of our small CNN, SHOT's LeNet, TLLib's digit networks, torchvision and timm.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torchvision import models
from torchvision.models import resnet

from tllib_ancon.data.batches import Batch, to_device
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.models.checkpoints import load_into, load_state_dict, rebuild_model, recognize, without_prefix
from tllib_ancon.models.classifier import (
    Classifier,
    NetworkClassifier,
    as_classifier,
    device_of,
    preprocessing_of,
    probe_images,
    require_network,
)
from tllib_ancon.models.foundation import ZeroShotClassifier
from tllib_ancon.models.outputs import called, described, usual_tensor
from tllib_ancon.runtime.errors import UserError, one_line, unknown_name

if TYPE_CHECKING:
    from tllib_ancon.toolkit.toolkit import Toolkit

IMAGENET = "imagenet"
"""The name that means an architecture with the ImageNet classifier of its model zoo."""

OWN = "python"
"""The library of a network that no known one builds: its weights alone are kept."""

Recipe = dict[str, Any]

HEADLESS = {
    "small_cnn": (3, 0),
    "shot_lenet": (1, 28),
    "lenet": (1, 28),
    "dtn": (3, 32),
}
"""Networks that are a backbone alone: channels and side of their images, 0 if any will do. Values are brought to
[-1, 1]."""

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
    of_timm, others = ([name for name in _names_in(library) if name not in RESNETS] for library in (TIMM, TORCHVISION))
    return [*HEADLESS, *RESNETS, *of_timm, *(TORCHVISION + name for name in others)]


def load(
    checkpoint: str | Path,
    arch: str,
    num_classes: int | None = None,
    *,
    arch_options: Mapping[str, Any] | None = None,
    pool: bool = True,
    bottleneck_dropout: float = 0.0,
    scratch: bool = False,
    pretrained_weights: str | Path | None = None,
) -> Classifier:
    """The source model of an adaptation, whose ``preprocessing`` tells what its images should be like.

    The settings of :class:`~tllib_ancon.config.model.ModelConfig` say what most arguments mean. With ``scratch``,
    ``imagenet`` has random weights and the backbone of another checkpoint learns at the full rate.
    """
    if checkpoint == IMAGENET:
        network = create_network(arch, None, not scratch and pretrained_weights is None, arch_options)
        if pretrained_weights is not None:
            weights = without_prefix(load_state_dict(pretrained_weights), network)
            load_into(network, weights, source=str(pretrained_weights))
        classifier = as_classifier(network, finetune=False)
    else:
        state = load_state_dict(checkpoint)
        if layout := recognize(state):
            backbone = create_backbone(arch, pretrained=False, options=arch_options)
            classifier = rebuild_model(layout, backbone, pool, not scratch)
        elif library_of(arch)[0] is None:
            raise UserError(
                f"the layout of the checkpoint {checkpoint} is unknown (its tensors: {one_line(', '.join(state))}); "
                f"for {arch} give one of TLLib's image classification scripts, dalib, the AnCon authors or this package"
            )
        else:
            network = create_network(arch, num_classes, options=arch_options)
            classifier = as_classifier(network, probe=probe_images(network), finetune=not scratch)
            tensors = without_prefix(state, network)
            number = _classes_of(tensors, network, classifier.num_classes)
            if number != classifier.num_classes:
                network = create_network(arch, number, options=arch_options)
                classifier = as_classifier(network, probe=probe_images(network), finetune=not scratch)
            try:
                load_into(network, tensors, f"checkpoint {checkpoint}, taken for the weights of a {arch},")
            except UserError as error:
                raise UserError(f"{error}; {_other_network(tensors, network, arch)}") from error
    if num_classes not in (None, classifier.num_classes):
        raise UserError(
            f"checkpoint {checkpoint} has {classifier.num_classes} classes, the dataset has {num_classes}; give a "
            "checkpoint of the same classes"
        )
    if bottleneck_dropout:
        classifier.drop_features(bottleneck_dropout)
    return classifier


def _classes_of(tensors: Mapping[str, Tensor], network: nn.Module, num_classes: int) -> int:
    """The number of classes of a checkpoint: the first dimension of those tensors that alone have another one than in
    the network, which is built for ``num_classes``."""
    lengths: set[int] = set()
    for name, expected in network.state_dict().items():
        tensor = tensors.get(name)
        if tensor is None or tensor.ndim == 0 or tensor.shape[1:] != expected.shape[1:]:
            continue
        if len(tensor) != len(expected) == num_classes:
            lengths.add(len(tensor))
    return lengths.pop() if len(lengths) == 1 else num_classes


def _other_network(tensors: Mapping[str, Tensor], network: nn.Module, arch: str) -> str:
    """What to do with weights that do not fit a network."""
    advice = "if they are of a changed network, pass `model=MODULE:FUNCTION`, a function that returns it, not `arch`"
    first = next((name for name, tensor in network.state_dict().items() if tensor.ndim == 4), "")
    channels = tensors[first].shape[1] if first in tensors and tensors[first].ndim == 4 else 0
    if channels in (0, network.state_dict()[first].shape[1]) or library_of(arch)[0] != TIMM:
        return advice
    return f"for a network of {channels} channels pass `arch_option=in_chans={channels}`"


def create_network(
    name: str, num_classes: int | None = None, pretrained: bool = False, options: Mapping[str, Any] | None = None
) -> nn.Module:
    """Build a whole network of torchvision or timm, images -> logits; K is by default that of its ImageNet weights."""
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
    """Build a network without its head, with ``out_features`` (C) and ``pretrained``, whether it has trained weights:
    images -> (B, C, H, W) or (B, C). A ``toolkit`` gives its own network of this name, for TLLib's scripts."""
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
    """The prefix of the library that has this network, None for one without a head, and its name there."""
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
    for option in options or {}:
        if library != TIMM:
            raise UserError(f"`arch_option` is for timm models; {name} takes none, got {option}; leave it out")
        if option.startswith("pretrained") or option in ("num_classes", "cache_dir", "checkpoint_path"):
            raise UserError(
                f"`arch_option` {option} is not of the network {name}; pass weights as `pretrained_weights`"
            )
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
        features = usual_tensor(called(network, probe_images(network), f": {with_options}"))
        if not isinstance(features, Tensor) or features.ndim != 2:
            raise UserError(f"{with_options} gives {described(features)} where one vector an image is expected")
        network.out_features = features.shape[1]
    network.pretrained = pretrained
    return network


def recipe_of(classifier: NetworkClassifier, images: Batch) -> Recipe:
    """What builds its network again; library ``python`` and the name of its class where nothing does. A recipe is tried
    at once: the network that it builds takes the same weights and gives the same logits for ``images``."""
    network = classifier.network
    batch = to_device(images, device_of(network))
    logits = called(classifier, batch)
    state = network.state_dict()
    channels = batch.shape[1] if isinstance(batch, Tensor) else 0
    with torch.random.fork_rng(devices=()):
        for recipe in _candidates(network, classifier.num_classes, channels):
            with suppress(UserError, TypeError):  # what is no JSON; what the library does not take
                kept: Recipe = json.loads(json.dumps(recipe))
                twin = build(kept).to(logits.device)
                load_into(twin, state, "")
                rebuilt = called(as_classifier(twin, probe=batch), batch)
                if torch.allclose(rebuilt, logits, rtol=1e-3, atol=1e-3 * float(logits.abs().max())):
                    return kept
    return {"library": OWN, "name": f"{type(network).__module__}.{type(network).__qualname__}"}


def build(recipe: Mapping[str, Any]) -> nn.Module:
    """The network of a recipe, with random weights; no code but the library's runs."""
    library, name, options = recipe["library"], recipe["name"], dict(recipe["options"])
    if library not in ("open_clip", "transformers"):
        return create_network(f"{library}/{name}", options.pop("num_classes"), options=options)
    try:
        if library == "open_clip":
            return ZeroShotClassifier(**options)
        import transformers
    except ImportError:
        raise UserError(f"{name} needs {library}: pip install 'tllib-ancon[foundation]'") from None
    made = getattr(transformers, name, None)
    if not isinstance(made, type) or not issubclass(made, transformers.PreTrainedModel):
        raise UserError(f"transformers {transformers.__version__} has no model {name}; install another version")
    network: nn.Module = made(transformers.AutoConfig.for_model(**options))
    return network


def imported(function: str) -> nn.Module:
    """The network that ``module:function`` returns; the module may lie in the current folder, as for ``python -m``."""
    module, colon, name = function.partition(":")
    if not (module and colon and name):
        raise UserError(f"`model={function}`: expected MODULE:FUNCTION, such as networks:build")
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        return require_network(getattr(importlib.import_module(module), name)())
    except Exception as error:  # any error can come out of a user's own module
        raise UserError(f"`model={function}` gave no network ({one_line(error)}); repair the function") from error


def _candidates(network: Any, num_classes: int, channels: int) -> Iterator[Recipe]:
    library = type(network).__module__.partition(".")[0]
    options: dict[str, Any] = {"num_classes": num_classes}
    if isinstance(network, ZeroShotClassifier):
        yield {"library": "open_clip", "name": "ZeroShotClassifier", "options": network.options}
    elif library == "transformers":
        yield {"library": library, "name": type(network).__name__, "options": network.config.to_dict()}
    elif library == "torchvision":
        shapes = {name: tensor.shape for name, tensor in network.state_dict().items()}
        for name in _names_in(TORCHVISION):
            builder: Callable[..., nn.Module] = models.get_model_builder(name)
            if builder.__module__ == type(network).__module__:
                with torch.device("meta"):
                    built = builder(**options).state_dict()
                if {name: tensor.shape for name, tensor in built.items()} == shapes:
                    yield {"library": library, "name": name, "options": options}
    elif name := (getattr(network, "pretrained_cfg", None) or {}).get("architecture", ""):
        import timm

        arguments = getattr(timm.models, "get_model_args", dict)  # since timm 1.0.31
        if timm.is_model(name):
            yield {"library": "timm", "name": name, "options": {"in_chans": channels, **arguments(network), **options}}
