"""Whole networks that were given as Python objects: what of them builds them again, by the library that made them."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torchvision import models

from tllib_ancon.errors import UserError, one_line
from tllib_ancon.models.classifier import Classifier, as_classifier, output_of, require_network
from tllib_ancon.models.hub import ZeroShotClassifier
from tllib_ancon.models.networks import create_network
from tllib_ancon.models.state_dicts import load_into

OWN = "python"
"""The library of a network that no known one builds: its weights alone are kept."""

Recipe = dict[str, Any]
"""``library``, ``name`` and ``options``, as JSON."""


def recipe_of(classifier: Classifier, network: nn.Module, images: Tensor) -> Recipe:
    """What builds this network again; library ``python`` and the name of its class where nothing does.

    A recipe is tried at once: the network that it builds takes the same weights, strictly, and gives the same logits
    for ``images``, (B, C, H, W). No random number of the program is drawn.
    """
    images = images.to(next(network.parameters(), images).device)
    logits, state = output_of(classifier, images), network.state_dict()
    shapes = {name: tensor.shape for name, tensor in state.items()}
    with torch.random.fork_rng(devices=()):
        for recipe in _candidates(network, classifier.num_classes, shapes, images.shape[1]):
            with suppress(UserError, TypeError):  # what is no JSON; what the library does not take
                kept: Recipe = json.loads(json.dumps(recipe))
                twin = build(kept).to(logits.device)
                load_into(twin, state, "")
                found = output_of(as_classifier(twin, probe=images), images)
                if torch.allclose(found, logits, rtol=1e-3, atol=1e-3 * float(logits.abs().max())):
                    return kept
    return {"library": OWN, "name": f"{type(network).__module__}.{type(network).__qualname__}"}


def build(recipe: Mapping[str, Any]) -> nn.Module:
    """The network of a recipe, with random weights. Nothing is downloaded, and no code but the library's is run."""
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
        raise UserError(f"`model={function}` gave no network ({one_line(error)})") from error


def _candidates(network: Any, num_classes: int, shapes: Mapping[str, torch.Size], channels: int) -> Iterator[Recipe]:
    """Recipes that may build a network, from the attributes that its library sets."""
    library = type(network).__module__.partition(".")[0]
    options: dict[str, Any] = {"num_classes": num_classes}
    if isinstance(network, ZeroShotClassifier):
        yield {"library": "open_clip", "name": "ZeroShotClassifier", "options": network.options}
    elif library == "transformers":
        yield {"library": library, "name": type(network).__name__, "options": network.config.to_dict()}
    elif library == "torchvision":
        for name in models.list_models(module=models):
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
