"""The trained model that settings name or a caller passes, as a reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.data.lists import read_class_names
from tllib_ancon.models.head import is_program
from tllib_ancon.models.output import Output
from tllib_ancon.models.references import ModelRef, refer
from tllib_ancon.runtime.errors import BadModel, BadSetting, named, one_line
from tllib_ancon.runtime.importing import function_named


def open_source(config: AdaptConfig | PredictConfig, model: Any = None, output: Output | None = None) -> ModelRef:
    """Find the model that settings name, or take the caller's network, which gets the weights of a checkpoint.

    Args:
        config: settings of the user; they have the path that a caller passes as the model
        model: what the caller passes
        output: what the caller passes. Default: that of the settings
    """
    learns = isinstance(config, AdaptConfig)
    module = None
    if model is not None and not isinstance(model, str | Path):
        module = _require_network(model)
        for name in ("checkpoint", "model"):
            if learns and getattr(config, name) is not None:
                raise BadSetting(f"give a model or {named(name)}, not both", "leave one out", setting=name)
    elif config.model is not None and config.checkpoint is not None:
        module = _network_of_function(config.model)
    names = _class_names(config.class_names)
    reference = refer(module, config.checkpoint, config.arch, names, config.allow_download)
    if learns and reference.module is not None and is_program(reference.module):
        raise BadModel(
            "a program of TorchScript predicts and does not learn",
            "pass the torch.nn.Module that it was made from",
        )
    return replace(reference, output=config.output if output is None else output)


def _network_of_function(function: str) -> nn.Module:
    """The network that ``module:function`` returns."""
    make_network = function_named("model", function)
    try:
        return _require_network(make_network())
    except Exception as error:  # any error can come out of a user's own module
        raise BadSetting(
            f"{named('model', function)} gave no network ({one_line(error)})", "repair the function", setting="model"
        ) from error


def _require_network(model: object) -> nn.Module:
    """Return the model if it is a network. Whether its logits are right and whether it learns is found by its calls."""
    if not isinstance(model, nn.Module):
        raise BadSetting(
            f"{named('model')} must be a torch.nn.Module, not of type {type(model).__name__}",
            "pass the network itself, with its weights, and after it the images",
            setting="model",
        )
    return model


def _class_names(setting: str | tuple[str, ...] | None) -> list[str] | None:
    """The names of the classes that a user gives, or that the file with this name holds."""
    if setting is None:
        return None
    names = [setting] if isinstance(setting, str) else [*setting]
    if len(names) == 1 and Path(names[0]).is_file():
        return read_class_names(Path(names[0]))
    if len(names) == 1:
        raise BadSetting(
            f"{named('class_names', names[0])} is not a file",
            "give the names in the order of the labels, such as cat dog, or a text file with a name on each line",
            setting="class_names",
        )
    if len({*names}) < len(names):
        raise BadSetting(
            f"{named('class_names')} has a name twice", "give each class a name of its own", setting="class_names"
        )
    return names
