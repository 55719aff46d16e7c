"""A second device without a GPU: tensors that say they are on ``cuda:0``, and operations that refuse to mix devices.

Inside ``with StandIn():`` this process has one GPU, ``cuda:0``. Its tensors lie in the CPU's memory and are computed by
the CPU's kernels, with PyTorch's own autograd, optimisers and autocast; each storage is marked with its device.

- Whatever names a device in Python is answered for the stand-in: ``to``, ``cuda``, ``cpu``, ``device=`` of everything
  that makes a tensor, ``pin_memory``, ``tensor.device``, ``torch.cuda.is_available()``, ``torch.autocast("cuda")``.
- Every operation that PyTorch starts, in the backward pass too, is refused where CUDA would refuse it: tensors of two
  devices (:mod:`tests.devices.rules`), ``numpy()`` of a tensor on the GPU, a generator of the CPU, pinning what is on
  the GPU.
- ``to("cpu", non_blocking=True)`` is refused: on a GPU the values are not there yet when the call returns.

What it cannot show: CUDA's kernels, their numbers, memory and speed; its lists of what autocast computes in which
precision (those of the CPU are used); a wait for the device (``tests/training/test_host_reads.py`` counts those);
random numbers of the device, which are the CPU's here; ``torch.compile``; threads that pin memory; several GPUs, NCCL
and ``SyncBatchNorm``; files that ``torch.save`` writes, which name the CPU. It was made so because a ``FakeTensorMode``
of ``cuda`` asks for a CUDA context in its backward pass and has no values for indices.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import TracebackType
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.devices.rules import CPU, device_of_result, name_of, tensors_in

DEVICE = torch.device("cuda:0")
_ENGINE: Any = torch.autograd._engine_run_backward  # type: ignore[attr-defined]


def device_of(tensor: Tensor) -> torch.device:
    """The device that the tensor stands for."""
    if tensor.device.type != "cpu":
        return tensor.device
    device: torch.device = getattr(tensor.untyped_storage(), "stands_for", CPU)
    return device


def on_device(tensor: Tensor, device: torch.device, dtype: torch.dtype | None = None, **layout: Any) -> Tensor:
    """A copy of the tensor on another device, through which gradients flow back."""
    copied: Tensor = _Moved.apply(tensor, _numbered(device), dtype, layout)
    return copied


class StandIn:
    """The context in which there is a second device."""

    def __enter__(self) -> StandIn:
        self._stack = contextlib.ExitStack()
        for target, replacement in _PATCHES.items():
            self._stack.enter_context(mock.patch(target, replacement))
        self._stack.enter_context(_accelerate_anew())
        names = _Names()
        self._stack.enter_context(mock.patch("torch.autograd._engine_run_backward", names.backward))
        self._stack.enter_context(_Operations(names))
        self._stack.enter_context(names)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()


class _Names(TorchFunctionMode):
    """Answers in Python what names a device.

    Attributes:
        current: of the function that runs, the device of its tensors, or the one it was asked for: where tensors are
            made that come from no other tensor
    """

    def __init__(self) -> None:
        super().__init__()
        self.current = CPU

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if function in _ANSWERS:
            return _ANSWERS[function](*args, **kwargs)
        asked = torch.device(kwargs["device"]) if kwargs.get("device") is not None else None
        if asked is not None and asked.type in ("cpu", DEVICE.type):
            kwargs["device"] = CPU
        else:
            asked = None
        tensors = tensors_in([args, kwargs])
        with self._on(asked or next((device for device in map(device_of, tensors) if device != CPU), CPU)):
            results = function(*args, **kwargs)
            for tensor in tensors_in(results):
                is_new = not any(_storage(tensor) == _storage(other) for other in tensors)
                if is_new and (asked is not None or not _is_marked(tensor)):
                    _mark(tensor, self.current)
        return results

    def backward(self, roots: Any, *args: Any, **kwargs: Any) -> Any:
        """PyTorch's engine, which calls backward passes that are written in Python: this mode is on in them too."""
        with self._on(next(map(device_of, tensors_in(roots)), CPU)), self:
            return _ENGINE(roots, *args, **kwargs)

    @contextlib.contextmanager
    def _on(self, device: torch.device) -> Iterator[None]:
        before, self.current = self.current, _numbered(device)
        try:
            yield
        finally:
            self.current = before


class _Operations(TorchDispatchMode):
    """Refuses operations on tensors of two devices, and marks what comes out of the others."""

    def __init__(self, names: _Names):
        super().__init__()  # type: ignore[no-untyped-call]
        self.names = names

    def __torch_dispatch__(
        self, operation: OpOverload, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        with torch._C.DisableTorchFunction():
            return self._run(operation, args, kwargs or {})

    def _run(self, operation: OpOverload, args: Any, kwargs: Mapping[str, Any]) -> Any:
        if _is_composite(operation):
            with self:  # in inference mode these come here as they are
                return operation.decompose(*args, **kwargs)
        device = device_of_result(operation, args, kwargs, device_of)
        if device is None or operation is torch.ops.aten.lift_fresh.default:  # made of numbers
            device = self.names.current
        if device != CPU and any(isinstance(value, torch.Generator) for value in [*args, *kwargs.values()]):
            raise RuntimeError(f"{operation} expects a generator of {device}, but found one of the CPU")
        results = operation(*args, **kwargs)
        for tensor in tensors_in(results):
            if not _is_marked(tensor):
                _mark(tensor, device)
        return results


class _Moved(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any, tensor: Tensor, device: torch.device, dtype: torch.dtype | None, layout: dict[str, Any]
    ) -> Tensor:
        context.origin = device_of(tensor), tensor.dtype
        with torch._C.DisableTorchFunction():
            copied = tensor.detach().to(dtype or tensor.dtype, copy=True, **layout)
        _mark(copied, device)
        return copied

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return on_device(gradient, *context.origin), None, None, None


def _to(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    copy = kwargs.pop("copy", False)
    other = kwargs.pop("other", None)
    rest = list(args)
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
    if other is not None:
        rest = [device_of(other), other.dtype, *rest]
    if len(rest) == 4 or (len(rest) == 3 and isinstance(rest[0], torch.dtype)):
        copy = rest.pop()
    device, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*rest, **kwargs)
    layout: dict[str, Any] = {} if memory_format is None else {"memory_format": memory_format}
    known = device is not None and device.type in ("cpu", DEVICE.type)
    if not known or _numbered(device) == device_of(tensor):
        stays: Tensor = tensor.to(device=None if known else device, dtype=dtype, copy=copy, **layout)
        return stays
    if device.type == "cpu" and non_blocking:
        raise RuntimeError("a copy to the CPU that does not wait has no values yet when the call returns")
    return on_device(tensor, device, dtype, **layout)


def _cuda(tensor: Tensor, device: Any = None, non_blocking: bool = False, **layout: Any) -> Tensor:
    return _to(tensor, DEVICE if device is None else torch.device(device), non_blocking=non_blocking, **layout)


def _cpu(tensor: Tensor, **layout: Any) -> Tensor:
    return _to(tensor, CPU, **layout)


def _as_tensor(data: Any, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
    tensor = data if isinstance(data, Tensor) else torch.as_tensor(data, dtype=dtype)
    return _to(tensor, device_of(tensor) if device is None else torch.device(device), dtype)


def _pin_memory(tensor: Tensor, device: Any = None) -> Tensor:
    if device_of(tensor) != CPU:
        raise RuntimeError("cannot pin a tensor of the GPU: only those of the CPU can be pinned")
    return on_device(tensor, CPU)


def _of_cpu_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        if device_of(tensor) != CPU:
            raise TypeError(f"can't convert a tensor of {device_of(tensor)} to numpy; use Tensor.cpu() first")
        return function(tensor, *args, **kwargs)

    return call


def _deepcopy(tensor: Tensor, memo: dict[int, Any]) -> Any:
    copied: Tensor = tensor.__deepcopy__(memo)  # type: ignore[no-untyped-call]
    _mark(copied, device_of(tensor))
    return copied


_ANSWERS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.Tensor.device.__get__: lambda tensor, *_: device_of(tensor),
    torch.Tensor.is_cuda.__get__: lambda tensor, *_: device_of(tensor) != CPU,  # type: ignore[attr-defined]
    torch.Tensor.is_cpu.__get__: lambda tensor, *_: device_of(tensor) == CPU,  # type: ignore[attr-defined]
    torch.Tensor.get_device: lambda tensor: -1 if device_of(tensor) == CPU else device_of(tensor).index,
    torch.Tensor.to: _to,
    torch.Tensor.cuda: _cuda,
    torch.Tensor.cpu: _cpu,
    torch.Tensor.pin_memory: _pin_memory,
    torch.Tensor.numpy: _of_cpu_alone(torch.Tensor.numpy),
    torch.Tensor.__array__: _of_cpu_alone(torch.Tensor.__array__),
    torch.Tensor.__deepcopy__: _deepcopy,
    torch.as_tensor: _as_tensor,
}


class _Autocast(torch.autocast):
    """``torch.autocast`` whose ``cuda`` is the CPU, with CUDA's default precision."""

    def __init__(self, device_type: str, dtype: torch.dtype | None = None, **options: Any):
        stands_for_gpu = device_type == DEVICE.type
        default = torch.float16 if stands_for_gpu else None
        super().__init__("cpu" if stands_for_gpu else device_type, dtype or default, **options)


def _no_state(device: Any = None) -> Tensor:
    """The state of a generator that the stand-in does not have."""
    return torch.zeros(0, dtype=torch.uint8)


_PATCHES: dict[str, Any] = {
    "torch.autocast": _Autocast,
    "torch.cuda.is_available": lambda: True,
    "torch.cuda.is_bf16_supported": lambda *_: True,
    "torch.cuda.device_count": lambda: 1,
    "torch.cuda.current_device": lambda: 0,
    "torch.cuda.set_device": lambda device: None,
    "torch.cuda.get_device_name": lambda *_: "stand-in",
    "torch.cuda.get_rng_state": _no_state,
    "torch.cuda.set_rng_state": lambda state, *_: None,
    "torch.cuda.synchronize": lambda *_: None,
}


@contextlib.contextmanager
def _accelerate_anew() -> Iterator[None]:
    """Accelerate remembers the device of a process: inside and after this it looks again."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        yield
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)


@cache
def _is_composite(operation: OpOverload) -> bool:
    """Whether it is made of other operations."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(name_of(operation), "CompositeImplicitAutograd")


def _numbered(device: torch.device) -> torch.device:
    return torch.device(device.type, 0) if device.type == DEVICE.type and device.index is None else device


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _is_marked(tensor: Tensor) -> bool:
    return hasattr(tensor.untyped_storage(), "stands_for")


def _mark(tensor: Tensor, device: torch.device) -> None:
    tensor.untyped_storage().stands_for = device  # type: ignore[attr-defined]
