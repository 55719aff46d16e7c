"""Copies of a caller's model to adapt: without wrappers and graphs of past forward passes, and wrapped again."""

import copy
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from itertools import chain
from types import CellType, FunctionType, MethodType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from tllib_ancon.runtime.errors import BadModel, one_line

Network = TypeVar("Network", bound=nn.Module)

REPARAMETRIZATIONS = (WeightNorm, SpectralNorm, BasePruningMethod)
"""Forward pre-hooks of torch that compute a weight from parameters and store it as an attribute."""

COPIED_OPTIONS = ("device_ids", "output_device", "dim", "process_group", "find_unused_parameters")
"""Options of a DistributedDataParallel that it stores under the names of its constructor."""


@contextmanager
def recording_gradients() -> Iterator[None]:
    """In this context operations record gradients, also inside a caller's ``no_grad`` or ``inference_mode``."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def _wrapped_module(module: nn.Module) -> nn.Module | None:
    """The module inside a wrapper of ``torch.compile``, DataParallel or DistributedDataParallel, else None."""
    if isinstance(module, DataParallel | DistributedDataParallel):
        inner: nn.Module = module.module
        return inner
    compiled_from: nn.Module | None = getattr(module, "_orig_mod", None)
    return compiled_from


def unwrapped(model: nn.Module) -> nn.Module:
    """The caller's own module inside the wrappers of a model."""
    inner = _wrapped_module(model)
    if inner is None:
        return model
    return unwrapped(inner)


def copy_of(model: Network) -> Network:
    """A deep copy of a model without its wrappers. Tensors that a forward pass stored are copied without their graph.

    Hooks of this package find features and statistics. The compiled form of a module ignores them, so that no part of a
    copy is compiled.
    """
    memo: dict[int, Any] = {}
    for module in model.modules():
        for tensor in _stored_results(vars(module)):
            memo[id(tensor)] = tensor.detach().clone()
    try:
        for wrapper in reversed([*model.modules()]):  # the innermost first
            inner = _wrapped_module(wrapper)
            if inner is not None:
                memo[id(wrapper)] = copy.deepcopy(inner, memo)
        copied = copy.deepcopy(model, memo)
        for module in copied.modules():
            if _compile_context(vars(module).get("forward")) is not None:  # compiled, it has the original's weights
                del vars(module)["forward"]
            for functions in (vars(module), module._forward_hooks, module._forward_pre_hooks):
                _rebind(functions, memo)
    except Exception as error:  # any error can come out of a user's own network
        raise BadModel(
            f"the model cannot be copied ({one_line(error)}): `copy.deepcopy(model)` must work. Remove the attribute "
            "that cannot be copied, such as an open file or a lock, before you pass the model"
        ) from error
    return copied


def _rebind(functions: MutableMapping[Any, Any], memo: dict[int, Any]) -> None:
    """Replace functions whose closure holds parts of the original by functions that hold those of the copy.

    ``deepcopy`` shares them with the original, such as a hook ``lambda *call: setattr(self, "features", call[2])``.
    """
    for name, function in functions.items():
        if isinstance(function, FunctionType):
            functions[name] = _rebound(function, memo)


def _rebound(value: Any, memo: dict[int, Any]) -> Any:
    """A value in a closure, with the parts of the original replaced by those of the copy."""
    if isinstance(value, MethodType) and id(value.__self__) in memo:
        return MethodType(value.__func__, memo[id(value.__self__)])
    if not isinstance(value, FunctionType):
        return memo.get(id(value), value)
    if id(value) in memo or hasattr(value, "_torchdynamo_orig_callable"):
        return memo.get(id(value), value)
    memo[id(value)] = value  # for one that calls itself
    cells = [cell for cell in value.__closure__ or () if cell != CellType()]
    contents = [_rebound(cell.cell_contents, memo) for cell in cells]
    is_same = all(content is cell.cell_contents for content, cell in zip(contents, cells, strict=True))
    if is_same or len(cells) < len(value.__closure__ or ()):
        return value
    closure = tuple(map(CellType, contents))
    function = FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, closure)
    function.__kwdefaults__ = value.__kwdefaults__
    vars(function).update(vars(value))
    memo[id(value)] = function
    return function


def in_the_form_of(model: nn.Module, adapted: nn.Module) -> nn.Module:
    """An adapted copy with the wrappers of the caller's model, and with its types, devices and frozen weights."""
    tensors = chain(adapted.parameters(), adapted.buffers())
    tensors_of_module = chain(model.parameters(), model.buffers())
    for tensor, tensor_of_module in zip(tensors, tensors_of_module, strict=True):
        tensor.data = tensor.data.to(tensor_of_module.device, tensor_of_module.dtype)
        tensor.requires_grad_(tensor_of_module.requires_grad)
    return _wrapped_again(adapted, model)


def _wrapped_again(copied: nn.Module, model: nn.Module) -> nn.Module:
    """A copy by :func:`copy_of`, wrapped and compiled as the model is, in whole and in parts."""
    inner = _wrapped_module(model)
    if inner is not None:
        return _wrapped_as(model, _wrapped_again(copied, inner))
    for name, child in model._modules.items():
        part = copied._modules.get(name)
        if child is not None and part is not None:
            copied._modules[name] = _wrapped_again(part, child)
    compile_again = _compile_context(model._compiled_call_impl)
    if compile_again is not None:
        copied._compiled_call_impl = compile_again(copied._call_impl)
    compile_forward = _compile_context(vars(model).get("forward"))
    if compile_forward is not None:
        copied.forward = compile_forward(copied.forward)
    return copied


def without_graphs(network: nn.Module) -> None:
    """Compute weight-normalised weights again, and detach what forward passes stored in attributes."""
    for module in network.modules():
        _recompute_weights(module)
        for name, value in vars(module).items():
            if [*_stored_results(value)]:
                vars(module)[name] = _detached(value)


@torch.no_grad()
def _recompute_weights(module: nn.Module) -> None:
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, REPARAMETRIZATIONS):
            hook(module, ())


def _wrapped_as(wrapper: Any, inner: nn.Module) -> nn.Module:
    if isinstance(wrapper, DistributedDataParallel):
        options = {name: getattr(wrapper, name) for name in COPIED_OPTIONS}
        parallel = DistributedDataParallel(inner, **options)
        parallel.broadcast_buffers = wrapper.broadcast_buffers
        return parallel
    if isinstance(wrapper, DataParallel):
        if not wrapper.device_ids:
            return DataParallel(inner)
        return DataParallel(inner, wrapper.device_ids, wrapper.output_device, wrapper.dim)
    compiled: nn.Module = type(wrapper)(inner, wrapper.dynamo_ctx)
    return compiled


def _compile_context(method: Any) -> Any:
    """The backend and options of a compiled method, as of ``module.compile()`` or ``module.forward =
    torch.compile(module.forward)``: torch stores them in its closure. None for a method that is not compiled."""
    if not hasattr(method, "_torchdynamo_orig_callable") or "self" not in method.__code__.co_freevars:
        return None
    position = method.__code__.co_freevars.index("self")
    return method.__closure__[position].cell_contents


@contextmanager
def apart_from(model: nn.Module | None) -> Iterator[None]:
    """In this context a copy of the model is called. A copy that calls parts of the model itself is an error: what it
    learns would not count."""
    calls: list[nn.Module] = []

    def remember(module: nn.Module, inputs: Any) -> None:
        calls.append(module)

    with ExitStack() as hooks:
        for module in () if model is None else model.modules():
            hooks.enter_context(module.register_forward_pre_hook(remember))
        yield
    if calls:
        raise BadModel(
            f"the model holds a function that calls {type(calls[0]).__name__} of this very object, so that a copy "
            "computes with the original's weights",
            "write it as a method in the class of the model",
        )


def _stored_results(value: Any) -> Iterator[Tensor]:
    """Tensors with a graph in an attribute, and in the lists, tuples and dicts in it."""
    if isinstance(value, Tensor):
        if not value.is_leaf:
            yield value
    elif type(value) is dict:
        for item in value.values():
            yield from _stored_results(item)
    elif type(value) in (list, tuple):
        for item in value:
            yield from _stored_results(item)


def _detached(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach()
    if type(value) is dict:
        return {key: _detached(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_detached(item) for item in value)
    return value
