"""Networks that their library builds again, by what it records of them."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from tllib_ancon.models.foundation import ZeroShotClassifier
from tllib_ancon.models.networks import create_network
from tllib_ancon.runtime.errors import BadModel, network_itself, one_line

OWN = "python"
"""The library of a network that no library builds: a run stores its weights alone."""

WITHOUT_EFFECT = ("Identity", "Drop", "StochasticDepth")
"""Types of layers that do nothing in evaluation mode begin like this. timm does not record their rates."""

Recipe = dict[str, Any]


def recipe_of(network: nn.Module, num_classes: int) -> Recipe:
    """What builds the same layers again by a network's library; library ``python`` where nothing does."""
    layers = _layers(network)
    for name, options in _names_and_options(network, num_classes):
        library = type(network).__module__.partition(".")[0]
        with suppress(BadModel, TypeError), torch.device("meta"):  # TypeError: options that are no JSON
            recipe: Recipe = json.loads(json.dumps({"library": library, "name": name, "options": options}))
            if _layers(build(recipe)) == layers:
                return recipe
    return {"library": OWN, "name": f"{type(network).__module__}.{type(network).__qualname__}"}


def _layers(network: nn.Module) -> list[tuple[str, str]]:
    """Names and options of the layers, and the shapes of all weights."""
    layers = [(name, str(tensor.shape)) for name, tensor in network.state_dict().items()]
    for name, layer in network.named_modules():
        is_leaf = next(layer.children(), None) is None
        if is_leaf and not type(layer).__name__.startswith(WITHOUT_EFFECT):
            layers.append((name, str(layer)))
    return layers


def _names_and_options(network: Any, num_classes: int) -> list[tuple[str, Recipe]]:
    """The network's name in its library and its options; of torchvision, which records neither, the names of all
    networks in its file."""
    file = type(network).__module__
    if isinstance(network, ZeroShotClassifier):
        return [("ZeroShotClassifier", network.options)]
    if file.startswith("transformers."):
        return [(type(network).__name__, network.config.to_dict())]
    if file.startswith("timm."):
        import timm

        options = {**timm.models.get_model_args(network), "num_classes": num_classes}
        return [(network.pretrained_cfg["architecture"], options)]
    if not file.startswith("torchvision."):
        return []
    from torchvision import models

    options = {name: getattr(network, name) for name in ("aux_logits", "transform_input") if hasattr(network, name)}
    names = [name for name in models.list_models(module=models) if models.get_model_builder(name).__module__ == file]
    return [(name, {**options, "num_classes": num_classes}) for name in names]


def build(recipe: Recipe) -> nn.Module:
    """The network of a recipe, with random weights; no code but the library's runs."""
    try:
        with torch.random.fork_rng(devices=()):
            network: nn.Module = _built(recipe["library"], recipe["name"], recipe["options"])
            return network
    except Exception as error:  # libraries raise any error for a name or options of another version
        raise BadModel(
            f"{recipe['library']} does not build {recipe['name']} again ({one_line(error)})", network_itself()
        ) from error


def _built(library: str, name: str, options: Recipe) -> Any:
    if library in ("timm", "torchvision"):
        return create_network(f"{library}/{name}", options=options)
    if library == "transformers":
        import transformers

        return getattr(transformers, name)(transformers.AutoConfig.for_model(**options))
    return ZeroShotClassifier(**options)
