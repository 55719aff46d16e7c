"""Copies of a caller's model to adapt: without the wrapper of the whole model, and wrapped again."""

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from tllib_ancon.models.calling import called
from tllib_ancon.models.head import observing
from tllib_ancon.models.output import OutputReader
from tllib_ancon.runtime.errors import BadModel, one_line


@contextmanager
def recording_gradients() -> Iterator[None]:
    """In this context operations record gradients, also inside a caller's ``no_grad`` or ``inference_mode``."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def unwrapped(model: nn.Module) -> nn.Module:
    """The module in a DataParallel, a DistributedDataParallel or a whole model that ``torch.compile`` compiled."""
    inner = getattr(model, "_orig_mod", None)
    if isinstance(model, DataParallel | DistributedDataParallel):
        inner = model.module
    return model if inner is None else unwrapped(inner)


def copy_of(model: nn.Module) -> nn.Module:
    """A deep copy of a model without its wrapper. Tensors with a graph, as weight-normalised weights, lose it."""
    network = unwrapped(model)
    memo: dict[int, Any] = {}
    for module in network.modules():
        for value in vars(module).values():
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    try:
        return copy.deepcopy(network, memo)
    except Exception as error:  # any error can come out of a user's own network
        raise BadModel(
            f"the model cannot be copied ({one_line(error)}): `copy.deepcopy(model)` must work",
            "remove the attribute that cannot be copied, such as an open file or a lock, before you pass the model",
        ) from error


def require_true_copy(
    model: nn.Module, copied: nn.Module, images: Tensor, reader: OutputReader, logits: Tensor
) -> None:
    """Raise an error if a copy calls parts of the model itself, or gives other logits than the model for images."""
    calls: list[nn.Module] = []
    with ExitStack() as contexts, observing():
        for module in model.modules():
            contexts.enter_context(module.register_forward_pre_hook(lambda part, inputs: calls.append(part)))
        copied_logits = reader(called(copied, images), len(images)).nan_to_num()
    expected = logits.to(copied_logits).nan_to_num()
    tolerance = 5e-2 if logits.dtype.itemsize == 2 else 1e-3
    if calls or (copied_logits - expected).abs().max() > tolerance * expected.abs().max():
        reason = "gives other logits for images"
        if calls:
            reason = f"calls {type(calls[0]).__name__} of the model itself"
        raise BadModel(
            f"a copy of the model by `copy.deepcopy` {reason}",
            "write what its forward reads as attributes and methods of its class, return the same in each call, and "
            "pass it before a part is compiled",
        )


def in_callers_form(adapted: nn.Module, model: nn.Module | None) -> nn.Module:
    """An adapted copy in evaluation mode, with the wrapper of the caller's model and with its types, devices and frozen
    weights."""
    # In PyTorch's own layout it computes what it computes when it is loaded again.
    adapted.eval().to(memory_format=torch.contiguous_format)
    if model is None:
        return adapted
    tensors = chain(adapted.parameters(), adapted.buffers())
    for tensor, original in zip(tensors, chain(model.parameters(), model.buffers()), strict=True):
        tensor.data = tensor.data.to(original.device, original.dtype)
        tensor.requires_grad_(original.requires_grad)
    return _wrapped_as(model, adapted)


def _wrapped_as(model: Any, network: nn.Module) -> nn.Module:
    if isinstance(model, DistributedDataParallel):
        return DistributedDataParallel(_wrapped_as(model.module, network), model.device_ids, model.output_device)
    if isinstance(model, DataParallel):
        return DataParallel(_wrapped_as(model.module, network), model.device_ids or None)
    if hasattr(model, "_orig_mod"):
        compiled: nn.Module = type(model)(_wrapped_as(model._orig_mod, network), model.dynamo_ctx)
        return compiled
    return network
