"""A second device without a GPU: tensors that say they are on ``cuda:0``, and operations that refuse to mix devices.

Inside ``with StandIn():`` this process has one GPU, ``cuda:0``. Its tensors lie in the CPU's memory and are computed by
the CPU's kernels, with PyTorch's own autograd, optimisers and autocast; each storage is marked with its device. What
names a device in Python is answered for the stand-in. Every operation that PyTorch starts, in the backward pass too, is
refused if its tensors are on two devices. CUDA's exceptions are allowed: copies, tensors without dimensions on the CPU
as inputs, and indices on the CPU of a tensor on the GPU. A few kernels of CUDA are stricter about the second.

What it cannot show: CUDA's kernels, their numbers, memory, speed and lists of what autocast computes in which
precision; a wait for the device; random numbers of the device; ``torch.compile``; several GPUs and NCCL.
"""

import contextlib
from functools import cache
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

CPU = torch.device("cpu")
DEVICE = torch.device("cuda:0")
INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put")
_ENGINE = torch.autograd._engine_run_backward


def device_of(tensor):
    """The device that the tensor stands for."""
    if tensor.device.type != "cpu":
        return tensor.device
    device = getattr(tensor.untyped_storage(), "stands_for", CPU)
    return device


def on_device(tensor, device, dtype=None, **layout):
    """A copy of the tensor on another device, through which gradients flow back."""
    copied = _Moved.apply(tensor, _numbered(device), dtype, layout)
    return copied


@contextlib.contextmanager
def StandIn():
    """The context in which there is a second device."""
    names = _Names()
    with contextlib.ExitStack() as stack:
        for target, replacement in {**_PATCHES, "torch.autograd._engine_run_backward": names.backward}.items():
            stack.enter_context(mock.patch(target, replacement))
        with _Operations(names), names:
            yield


def tensors_in(values):
    """The tensors in nested lists, tuples and dicts."""
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, list | tuple):
        return []
    return [tensor for value in values for tensor in tensors_in(value)]


def _device_of_result(operation, args, kwargs):
    """Where the operation runs on these arguments; None if there is no tensor among them."""
    name = operation.overloadpacket.__name__
    given = [*args, *kwargs.values()]
    tensors = tensors_in(given)
    distinct = list(dict.fromkeys(map(device_of, tensors)))
    if len(distinct) <= 1 or name in ("copy_", "copy"):
        return distinct[0] if distinct else None
    if name in INDEXING:
        given = [given[0], *given[2:]]
        tensors = tensors_in(given)
    pairs = zip(operation._schema.arguments, given, strict=False)
    written = {id(tensor) for argument, value in pairs if argument.is_write for tensor in tensors_in(value)}
    odd = [tensor for tensor in tensors if device_of(tensor) == CPU and (tensor.ndim or id(tensor) in written)]
    if odd:
        raise RuntimeError(
            f"{operation} expects all tensors to be on the same device, but found {' and '.join(map(str, distinct))}"
        )
    return DEVICE


class _Names(TorchFunctionMode):
    """Answers in Python what names a device.

    Attributes:
        current: of the function that runs, the device of its tensors, or the one it was asked for: where tensors are
            made that come from no other tensor
    """

    def __init__(self):
        super().__init__()
        self.current = CPU

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function in _ANSWERS:
            return _ANSWERS[function](*args, **kwargs)
        asked = torch.device(kwargs["device"]) if kwargs.get("device") is not None else None
        if asked is not None and asked.type in ("cpu", DEVICE.type):
            kwargs["device"] = CPU
        else:
            asked = None
        tensors = tensors_in([args, kwargs])
        devices = [device for device in map(device_of, tensors) if device != CPU]
        with self._on(asked or next(iter(devices), CPU)):
            results = function(*args, **kwargs)
            for tensor in tensors_in(results):
                is_new = not any(_storage(tensor) == _storage(other) for other in tensors)
                if is_new and (asked is not None or not _is_marked(tensor)):
                    _mark(tensor, self.current)
        return results

    def backward(self, roots, *args, **kwargs):
        """PyTorch's engine, which calls backward passes that are written in Python: this mode is on in them too."""
        with self._on(next(map(device_of, tensors_in(roots)), CPU)), self:
            return _ENGINE(roots, *args, **kwargs)

    @contextlib.contextmanager
    def _on(self, device):
        before = self.current
        self.current = _numbered(device)
        try:
            yield
        finally:
            self.current = before


class _Operations(TorchDispatchMode):
    """Refuses operations on tensors of two devices, and marks what comes out of the others."""

    def __init__(self, names):
        super().__init__()
        self.names = names

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunction():
            return self._run(operation, args, kwargs or {})

    def _run(self, operation, args, kwargs):
        if _is_composite(operation):
            with self:  # in inference mode these come here as they are
                return operation.decompose(*args, **kwargs)
        device = _device_of_result(operation, args, kwargs)
        if device is None or operation is torch.ops.aten.lift_fresh.default:  # made of numbers
            device = self.names.current
        draws = any(isinstance(value, torch.Generator) for value in [*args, *kwargs.values()])
        if device != CPU and draws:
            raise RuntimeError(f"{operation} expects a generator of {device}, but found one of the CPU")
        results = operation(*args, **kwargs)
        for tensor in tensors_in(results):
            if not _is_marked(tensor):
                _mark(tensor, device)
        return results


class _Moved(torch.autograd.Function):
    @staticmethod
    def forward(context, tensor, device, dtype, layout):
        context.origin = device_of(tensor), tensor.dtype
        with torch._C.DisableTorchFunction():
            copied = tensor.detach().to(dtype or tensor.dtype, copy=True, **layout)
        _mark(copied, device)
        return copied

    @staticmethod
    def backward(context, gradient):
        return on_device(gradient, *context.origin), None, None, None


def _to(tensor, *args, **kwargs):
    copy = kwargs.pop("copy", False)
    if args and isinstance(args[0], Tensor):
        args = (device_of(args[0]), args[0].dtype)
    device, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **kwargs)
    layout = {} if memory_format is None else {"memory_format": memory_format}
    known = device is not None and device.type in ("cpu", DEVICE.type)
    if not known or _numbered(device) == device_of(tensor):
        stays = tensor.to(device=None if known else device, dtype=dtype, copy=copy, **layout)
        return stays
    if device.type == "cpu" and non_blocking:
        raise RuntimeError("a copy to the CPU that does not wait has no values yet when the call returns")
    return on_device(tensor, device, dtype, **layout)


def _as_tensor(data, dtype=None, device=None):
    tensor = data if isinstance(data, Tensor) else torch.as_tensor(data, dtype=dtype)
    return _to(tensor, device_of(tensor) if device is None else torch.device(device), dtype)


def _of_cpu_alone(function):
    def call(tensor, *args, **kwargs):
        if device_of(tensor) != CPU:
            raise TypeError(f"can't convert a tensor of {device_of(tensor)} to numpy; use Tensor.cpu() first")
        return function(tensor, *args, **kwargs)

    return call


def _deepcopy(tensor, memo):
    copied = tensor.__deepcopy__(memo)
    _mark(copied, device_of(tensor))
    return copied


_ANSWERS = {
    torch.Tensor.device.__get__: lambda tensor, *_: device_of(tensor),
    torch.Tensor.is_cuda.__get__: lambda tensor, *_: device_of(tensor) != CPU,
    torch.Tensor.to: _to,
    torch.Tensor.cpu: lambda tensor, **layout: _to(tensor, CPU, **layout),
    torch.Tensor.numpy: _of_cpu_alone(torch.Tensor.numpy),
    torch.Tensor.__array__: _of_cpu_alone(torch.Tensor.__array__),
    torch.Tensor.__deepcopy__: _deepcopy,
    torch.as_tensor: _as_tensor,
}


class _Autocast(torch.autocast):
    """``torch.autocast`` whose ``cuda`` is the CPU, with CUDA's default precision."""

    def __init__(self, device_type, dtype=None, **options):
        stands_for_gpu = device_type == DEVICE.type
        default = torch.float16 if stands_for_gpu else None
        super().__init__("cpu" if stands_for_gpu else device_type, dtype or default, **options)


_PATCHES = {
    "torch.autocast": _Autocast,
    "torch.cuda.is_available": lambda: True,
    "torch.cuda.is_bf16_supported": lambda **_: True,
    "torch.cuda.device_count": lambda: 1,
    "torch.cuda.current_device": lambda: 0,
    "torch.cuda.set_device": lambda device: None,
    "torch.cuda.get_device_name": lambda *_: "stand-in",
    "torch.cuda.get_rng_state": lambda *_: torch.zeros(0, dtype=torch.uint8),
    "torch.cuda.set_rng_state": lambda state, *_: None,
    "torch.cuda.synchronize": lambda *_: None,
    # asked by optimizers that could be captured in a graph
    "torch.optim.optimizer.Optimizer._accelerator_graph_capture_health_check": lambda optimizer: None,
    # the thread of a loader, in which no mode is on
    "torch.accelerator.current_device_index": lambda: 0,
    "torch.accelerator.set_device_index": lambda device: None,
    "torch.utils.data._utils.pin_memory.pin_memory": lambda data, device=None: data,
}


@cache
def _is_composite(operation):
    """Whether it is made of other operations."""
    name = operation.name()
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")


def _numbered(device):
    if device.type == DEVICE.type and device.index is None:
        return torch.device(device.type, 0)
    return device


def _storage(tensor):
    return int(tensor.untyped_storage()._cdata)


def _is_marked(tensor):
    return hasattr(tensor.untyped_storage(), "stands_for")


def _mark(tensor, device):
    tensor.untyped_storage().stands_for = device
