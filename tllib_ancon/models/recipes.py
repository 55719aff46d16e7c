"""Networks that are built again: by the recipe that a run records, or by a function of the user."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.data.batches import Batch, to_device
from tllib_ancon.models.calling import called, device_of
from tllib_ancon.models.checkpoints import load_into
from tllib_ancon.models.classifier import NetworkClassifier, as_classifier
from tllib_ancon.models.foundation import ZeroShotClassifier
from tllib_ancon.models.networks import TORCHVISION, create_network, names_in
from tllib_ancon.models.requirements import require_network
from tllib_ancon.runtime.errors import BadModel, BadSetting, UserError, named, one_line
from tllib_ancon.runtime.extras import require
from tllib_ancon.runtime.importing import function_named

OWN = "python"
"""The library of a network that no library builds: a run stores its weights alone."""

Recipe = dict[str, Any]


def recipe_of(classifier: NetworkClassifier, images: Batch) -> Recipe:
    """What builds its network again; library ``python`` and the name of its class where nothing does. A recipe is tried
    at once: the network that it builds takes the same weights and gives the same logits for ``images``."""
    network = classifier.network
    probe: Batch = to_device(images, device_of(network))
    channels = 0
    if isinstance(probe, Tensor):
        channels = probe.shape[1]
    logits = called(classifier, probe)
    with torch.random.fork_rng(devices=()):
        for candidate in _candidates(network, classifier.num_classes, channels):
            recipe = _tried(candidate, network, probe, logits)
            if recipe is not None:
                return recipe
    return {"library": OWN, "name": f"{type(network).__module__}.{type(network).__qualname__}"}


def _tried(candidate: Recipe, network: nn.Module, images: Batch, logits: Tensor) -> Recipe | None:
    """The candidate as a file holds it, if it builds the network; None if it does not."""
    with suppress(UserError, TypeError):  # options that are no JSON, or that the library does not take
        recipe: Recipe = json.loads(json.dumps(candidate))
        twin = build(recipe).to(logits.device)
        load_into(twin, network.state_dict(), "")
        twin_logits = called(as_classifier(twin, probe=images), images)
        if torch.allclose(twin_logits, logits, rtol=1e-3, atol=1e-3 * float(logits.abs().max())):
            return recipe
    return None


def build(recipe: Recipe) -> nn.Module:
    """The network of a recipe, with random weights; no code but the library's runs."""
    library = recipe["library"]
    name = recipe["name"]
    options = dict(recipe["options"])
    if library not in ("open_clip", "transformers"):
        return create_network(f"{library}/{name}", options.pop("num_classes"), options=options)
    require(f"the network {name}", library, extra="foundation")
    if library == "open_clip":
        return ZeroShotClassifier(**options)
    import transformers

    model_class = getattr(transformers, name, None)
    if not isinstance(model_class, type) or not issubclass(model_class, transformers.PreTrainedModel):
        raise BadModel(f"transformers {transformers.__version__} has no model {name}", "install another version")
    network: nn.Module = model_class(transformers.AutoConfig.for_model(**options))
    return network


def imported(function: str) -> nn.Module:
    """The network that ``module:function`` returns."""
    make_network = function_named("model", function)
    try:
        return require_network(make_network())
    except Exception as error:  # any error can come out of a user's own module
        raise BadSetting(
            f"{named('model', function)} gave no network ({one_line(error)})", "repair the function", setting="model"
        ) from error


def _candidates(network: Any, num_classes: int, channels: int) -> Iterator[Recipe]:
    """Recipes that may build a network: of its library, by its options or by the shapes of its weights."""
    library = type(network).__module__.partition(".")[0]
    if isinstance(network, ZeroShotClassifier):
        yield {"library": "open_clip", "name": "ZeroShotClassifier", "options": network.options}
    elif library == "transformers":
        yield {"library": library, "name": type(network).__name__, "options": network.config.to_dict()}
    elif library == "torchvision":
        for name in _torchvision_names(network, num_classes):
            yield {"library": library, "name": name, "options": {"num_classes": num_classes}}
    elif hasattr(network, "pretrained_cfg"):
        yield from _timm_recipes(network, num_classes, channels)


def _torchvision_names(network: nn.Module, num_classes: int) -> Iterator[str]:
    """Names of torchvision's networks of the same module with weights of the same shapes."""
    from torchvision import models  # torchvision starts slowly

    shapes = _shapes(network)
    for name in names_in(TORCHVISION):
        builder: Callable[..., nn.Module] = models.get_model_builder(name)
        if builder.__module__ != type(network).__module__:
            continue
        with torch.device("meta"):
            twin = builder(num_classes=num_classes)
        if _shapes(twin) == shapes:
            yield name


def _shapes(network: nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in network.state_dict().items()}


def _timm_recipes(network: Any, num_classes: int, channels: int) -> Iterator[Recipe]:
    import timm

    name = (network.pretrained_cfg or {}).get("architecture", "")
    if not timm.is_model(name):
        return
    if hasattr(timm.models, "get_model_args"):  # since timm 1.0.31
        candidates = [timm.models.get_model_args(network)]
    else:
        candidates = _visible_options(network)
    for candidate in candidates:
        options = {"in_chans": channels, **candidate, "num_classes": num_classes}
        yield {"library": "timm", "name": name, "options": options}


def _visible_options(network: Any) -> list[Recipe]:
    """Options that may have made a network of a timm that does not record them, from the fewest to all that its
    attributes show. Rates of dropout are left out, as newer versions leave them out."""
    images_and_pooling: Recipe = {}
    first_convolution = dict(network.named_modules()).get(network.pretrained_cfg.get("first_conv"))
    values = {
        "in_chans": getattr(first_convolution, "in_channels", None),
        "img_size": getattr(getattr(network, "patch_embed", None), "img_size", None),
        "global_pool": _pooling(network),
    }
    for name, value in values.items():
        if value is not None:
            images_and_pooling[name] = value
    return [{}, images_and_pooling, {**_arguments_in_attributes(network), **images_and_pooling}]


def _pooling(network: nn.Module) -> str | None:
    """The name of the pooling before the head of a network of timm."""
    for part in (network, getattr(network, "head", None)):
        pooling = getattr(part, "global_pool", None)
        name = getattr(pooling, "pool_type", pooling)
        if isinstance(name, str):
            return name
    return None


def _arguments_in_attributes(network: nn.Module) -> Recipe:
    """Arguments of the network's class that it or its patch embedding has as attributes, and the number of blocks."""
    arguments: Recipe = {}
    for name in inspect.signature(type(network)).parameters:
        for part in (getattr(network, "patch_embed", None), network):
            value = getattr(part, name, None)
            if isinstance(value, int | str | tuple) and not name.endswith("drop_rate"):
                arguments[name] = value
    blocks = getattr(network, "blocks", None)
    if isinstance(blocks, nn.Sequential):
        arguments["depth"] = len(blocks)
    return arguments
