"""What a caller passes as a model: a network, or an error that says what to pass."""

from collections.abc import Mapping
from os import PathLike

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from tllib_ancon.runtime.errors import BadModel, BadSetting, named


def require_network(model: object, learns: bool = False) -> nn.Module:
    """Return the model if it is a network, with ``learns`` one of Python modules, which alone take hooks and modes.
    Whether its logits are right and whether it learns is found by its calls."""
    if not isinstance(model, nn.Module):
        raise BadSetting(
            f"{named('model')} must be a torch.nn.Module, not of type {type(model).__name__}",
            _network_of(model),
            setting="model",
        )
    if learns and is_program(model):
        raise BadModel(
            "a program of TorchScript or torch.export predicts and does not learn",
            "pass the torch.nn.Module that it was made from",
        )
    if any(parameter.is_meta for parameter in model.parameters()):
        raise BadModel("the model has weights on the device meta, shapes without values", "load them first")
    return model


def _network_of(model: object) -> str:
    """What to pass in place of an object that is no network."""
    if isinstance(model, list | tuple | np.ndarray | Tensor | Dataset):
        return "pass the network first and the images second"
    if isinstance(model, Mapping):
        return "pass the network that has loaded these weights"
    if isinstance(model, str | PathLike):
        return "pass the network with its weights"
    return "pass the network itself; of a function or a class the network that it makes"


def is_program(model: nn.Module) -> bool:
    """Whether a part of it is TorchScript, or ``torch.export`` has made it and set a method in place of ``train``."""
    return any(
        isinstance(part, torch.jit.ScriptModule) or (isinstance(part, torch.fx.GraphModule) and "train" in vars(part))
        for part in model.modules()
    )
