"""What a caller passes as a model: a network, or an error that says what to pass."""

import torch
from torch import nn

from tllib_ancon.runtime.errors import BadModel, BadSetting, named


def require_network(model: object, learns: bool = False) -> nn.Module:
    """Return the model if it is a network, with ``learns`` one of Python modules, which alone take hooks and modes.
    Whether its logits are right and whether it learns is found by its calls."""
    if not isinstance(model, nn.Module):
        raise BadSetting(
            f"{named('model')} must be a torch.nn.Module, not of type {type(model).__name__}",
            "pass the network itself, with its weights, and after it the images",
            setting="model",
        )
    if learns and is_program(model):
        raise BadModel(
            "a program of TorchScript predicts and does not learn",
            "pass the torch.nn.Module that it was made from",
        )
    return model


def is_program(model: nn.Module) -> bool:
    """Whether a part of it is TorchScript."""
    return any(isinstance(part, torch.jit.ScriptModule) for part in model.modules())
