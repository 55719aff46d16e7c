"""What a caller passes as a model: an error for everything that cannot predict, or cannot learn."""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from tllib_ancon.runtime.errors import BadModel, BadSetting, named


def require_network(model: object, learns: bool = False) -> nn.Module:
    """Return the model if it is a network with weights, with ``learns`` a trainable one."""
    if isinstance(model, str | Path):
        raise BadSetting(
            f"{named('model')} must be a torch.nn.Module, got the path {model}",
            "pass the network with these weights",
            setting="model",
        )
    if not isinstance(model, nn.Module):
        raise BadSetting(
            f"{named('model')} must be a torch.nn.Module, a checkpoint or a run directory, not of type "
            f"{type(model).__name__}",
            f"{_network_of(model)}",
            setting="model",
        )
    if torch.get_default_device().type == "meta":
        raise BadModel(
            "PyTorch's default device is meta, which holds no values", "call torch.set_default_device('cpu')"
        )
    if any(tensor.is_meta for tensor in chain(model.parameters(), model.buffers())):
        raise BadModel("the model has weights on the device meta, shapes without values", "load them first")
    if hasattr(model, "encode_image") or hasattr(model, "get_image_features"):
        raise BadModel(
            "the model gives embeddings of images and texts, no logits: pass its image tower followed by "
            "tllib_ancon.models.CosineHead(embeddings of the classes' texts)",
            "docs/networks.md shows how",
        )
    if learns:
        _require_trainable(model)
    return model


def _require_trainable(model: nn.Module) -> None:
    """Raise an error for a network whose form leaves nothing to train."""
    if isinstance(model, torch.jit.ScriptModule):
        raise BadModel("a TorchScript program does not learn", "pass the torch.nn.Module that it was made from")
    if any(map(_is_exported, model.modules())):
        raise BadModel("a program of torch.export does not learn", "pass the torch.nn.Module that it was made from")
    if any(weight.is_complex() for weight in model.parameters()):
        raise BadModel(
            "the model has complex weights, which cannot adapt",
            "keep them as real parameters, by torch.view_as_real, and make them complex in the forward",
        )
    quantised = _signs_of_quantisation(model)
    if quantised:
        raise BadModel(
            f"the model is quantised ({', '.join(quantised)}): its integers have no gradient",
            "adapt it as it was before, and quantise what comes back",
        )


def _network_of(model: object) -> str:
    """What to pass in place of an object that is no network."""
    if isinstance(model, list | tuple | np.ndarray | Tensor | Dataset):
        return "pass the network first and the images second"
    if isinstance(model, Mapping):
        return "pass the network that has loaded these weights"
    for attribute in ("model", "module"):
        if hasattr(model, attribute):
            return f"pass its {attribute}"
    return "pass the network itself; of a function or a class the network that it makes"


def _is_exported(module: nn.Module) -> bool:
    """Whether ``torch.export`` has made it, and set a method in place of ``train``."""
    return isinstance(module, torch.fx.GraphModule) and "train" in vars(module)


def _signs_of_quantisation(model: nn.Module) -> list[str]:
    """Types of integer weights, quantised modules and attributes of libraries that say that a model is quantised."""
    signs = {str(weight.dtype) for weight in model.parameters() if not weight.is_floating_point()}
    signs |= {type(module).__qualname__ for module in model.modules() if ".quantized" in type(module).__module__}
    signs |= {name for name in ("quantization_method", "is_quantized") if getattr(model, name, None)}
    return sorted(signs)
