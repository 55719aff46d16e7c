"""Networks that are built again: by what their library records of them, or by a function of the user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from tllib_ancon.models.foundation import ZeroShotClassifier
from tllib_ancon.models.requirements import require_network
from tllib_ancon.runtime.errors import BadModel, BadSetting, named, network_itself, one_line
from tllib_ancon.runtime.importing import function_named

OWN = "python"
"""The library of a network that no library builds: a run stores its weights alone."""

WITHOUT_EFFECT = ("Identity", "Drop", "StochasticDepth")
"""Types of layers that do nothing in evaluation mode begin like this. timm does not record their rates."""

Recipe = dict[str, Any]


def recipe_of(network: nn.Module, num_classes: int) -> Recipe:
    """What builds the same layers again by a network's library; library ``python`` where nothing does."""
    layers = _layers(network)
    for recipe in _recorded_by_library(network, num_classes):
        with suppress(BadModel, TypeError), torch.device("meta"):  # TypeError: options that are no JSON
            stored: Recipe = json.loads(json.dumps(recipe))
            if _layers(build(stored)) == layers:
                return stored
    return {"library": OWN, "name": f"{type(network).__module__}.{type(network).__qualname__}"}


def _layers(network: nn.Module) -> list[tuple[str, str]]:
    """Names and options of the layers, and the shapes of all weights."""
    layers = [(name, str(tensor.shape)) for name, tensor in network.state_dict().items()]
    for name, layer in network.named_modules():
        is_leaf = next(layer.children(), None) is None
        if is_leaf and not type(layer).__name__.startswith(WITHOUT_EFFECT):
            layers.append((name, str(layer)))
    return layers


def _recorded_by_library(network: Any, num_classes: int) -> Iterator[Recipe]:
    """Recipes by a network's own record, or the names of torchvision's networks of its kind, which have no record."""
    library = type(network).__module__.partition(".")[0]
    if isinstance(network, ZeroShotClassifier):
        yield {"library": "open_clip", "name": "ZeroShotClassifier", "options": network.options}
    elif library == "transformers":
        yield {"library": library, "name": type(network).__name__, "options": network.config.to_dict()}
    elif library == "timm":
        import timm

        if hasattr(timm.models, "get_model_args"):  # since timm 1.0.31
            options = {**timm.models.get_model_args(network), "num_classes": num_classes}
            yield {"library": library, "name": network.pretrained_cfg["architecture"], "options": options}
    elif library == "torchvision":
        from torchvision import models

        options = {name: getattr(network, name) for name in ("aux_logits", "transform_input") if hasattr(network, name)}
        for name in models.list_models(module=models):
            if models.get_model_builder(name).__module__ == type(network).__module__:
                yield {"library": library, "name": name, "options": {**options, "num_classes": num_classes}}


def build(recipe: Recipe) -> nn.Module:
    """The network of a recipe, with random weights; no code but the library's runs."""
    library = recipe["library"]
    try:
        with torch.random.fork_rng(devices=()):
            return _built(library, recipe["name"], recipe["options"])
    except Exception as error:  # libraries raise any error for a name or options of another version
        raise BadModel(
            f"{library} does not build {recipe['name']} again ({one_line(error)})", network_itself()
        ) from error


def _built(library: str, name: str, options: Recipe) -> nn.Module:
    if library == "open_clip":
        return ZeroShotClassifier(**options)
    network: nn.Module
    if library == "timm":
        import timm

        network = timm.create_model(name, **options)
    elif library == "torchvision":
        from torchvision import models

        network = models.get_model(name, **options)
    else:
        import transformers

        model_class = getattr(transformers, name)
        network = model_class(transformers.AutoConfig.for_model(**options))
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
