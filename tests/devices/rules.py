"""Which tensors of a CPU and of a GPU one operation takes together, as PyTorch decides it.

PyTorch's own table, ``native_functions.yaml``, says which kernels of CUDA compare the devices of all their tensors
before they start: all but those with ``device_check: NoCheck``. Those check for themselves, and take this:

- element by element (``TensorIterator``; tag ``pointwise``): one input without dimensions may be on the CPU
- ``where``: any number of these; ``fill_`` and ``masked_fill``: as the value
- indexing, ``x[i]`` and ``x[i] = y``: indices on the CPU, also where values accumulate; not indices on the GPU of a
  tensor on the CPU. The values are on the device of ``x``, or one of them without dimensions on the CPU
- ``copy_``: anything
- ``_foreach_…``: the tensors of one position in the lists go together, by the rule of a single one

So ``index_select``, ``gather``, ``scatter``, ``index_add``, ``embedding``, matrix products, ``cat``, losses and
batch-norm take tensors of one device alone, with or without dimensions.

Source: ``native_functions.yaml`` as torchgen packs it, ``TensorIterator.cpp`` (``compute_types``),
``TensorAdvancedIndexing.cpp`` (``make_info``, ``_index_put_impl_``), ``Indexing.cu`` (``computeLinearIndex``,
``masked_fill__cuda``), ``TensorCompare.cpp`` (``where``), ``Fill.cpp``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torchgen  # type: ignore[import-untyped]
from torch import Tensor
from torch._ops import OpOverload

CPU = torch.device("cpu")
DeviceOf = Callable[[Tensor], torch.device]

COPIES = ("copy_", "copy")
INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put")
VALUES = ("fill_.Tensor", "masked_fill.Tensor", "masked_fill_.Tensor")
"""Operations whose last tensor is a value without dimensions, on any device."""
TABLE = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"


class MixedDevices(RuntimeError):
    """CUDA would refuse these tensors together."""

    def __init__(self, operation: OpOverload, found: Sequence[torch.device]):
        super().__init__(
            f"{operation} expects all tensors to be on the same device, but found {' and '.join(map(str, found))}"
        )


def device_of_result(
    operation: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], device_of: DeviceOf
) -> torch.device | None:
    """Where the operation runs on these arguments; None if there is no tensor among them.

    Raises:
        MixedDevices: it refuses them
    """
    name = operation.overloadpacket.__name__
    given = [*args, *kwargs.values()]
    tensors = tensors_in(given)
    devices = [device_of(tensor) for tensor in tensors]
    distinct = list(dict.fromkeys(devices))
    if len(distinct) <= 1:
        return distinct[0] if distinct else None
    if name in COPIES:
        return devices[0]
    if name.startswith("_foreach_"):
        return _of_lists(operation, given, device_of)
    device = next(device for device in distinct if device != CPU)
    if name in INDEXING:
        _, indices, *values = [*args, *kwargs.values()]
        allowed = devices[0] == device and all(device_of(index) in (CPU, device) for index in tensors_in(indices))
        rest = [value for value in tensors_in(values) if device_of(value) != device]
    else:
        rest = [tensor for tensor in tensors if device_of(tensor) != device]
        written = {id(tensor) for tensor in _written(operation, args, kwargs)}
        allowed = not any(id(tensor) in written for tensor in rest) and len(rest) <= scalars_taken(operation)
    if not allowed or any(tensor.ndim or device_of(tensor) != CPU for tensor in rest):
        raise MixedDevices(operation, distinct)
    return device


def scalars_taken(operation: OpOverload) -> int:
    """How many tensors without dimensions may be on the CPU while the others are on a GPU."""
    name = name_of(operation).removeprefix("aten::")
    if name == "where.self":
        return 3
    if name in VALUES:
        return 1
    return int(name in _unchecked() and torch.Tag.pointwise in operation.tags)


def name_of(operation: OpOverload) -> str:
    """Such as ``aten::add.Tensor``."""
    return str(operation.name())  # type: ignore[no-untyped-call]


def tensors_in(values: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples and dicts."""
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, list | tuple):
        return []
    return [tensor for value in values for tensor in tensors_in(value)]


def _of_lists(operation: OpOverload, given: Sequence[Any], device_of: DeviceOf) -> torch.device:
    lists = [value for value in given if isinstance(value, list | tuple) and tensors_in(value)]
    single = [value for value in given if isinstance(value, Tensor)]
    for position in zip(*lists, strict=True):
        together = [*tensors_in(position), *single]
        devices = list(dict.fromkeys(map(device_of, together)))
        rest = [tensor for tensor in together[1:] if device_of(tensor) != devices[0]]
        if rest and (devices[0] == CPU or any(tensor.ndim for tensor in rest)):
            raise MixedDevices(operation, devices)
    return device_of(tensors_in(lists)[0])


def _written(operation: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    for position, argument in enumerate(operation._schema.arguments):
        if argument.is_write:
            yield from tensors_in([args[position] if position < len(args) else kwargs.get(argument.name)])


@cache
def _unchecked() -> frozenset[str]:
    """The functions of the table with ``device_check: NoCheck``, such as ``add.Tensor``."""
    entries = TABLE.read_text().split("\n- func: ")[1:]
    return frozenset(re.split(r"\(", entry, maxsplit=1)[0] for entry in entries if "\n  device_check: NoCheck" in entry)
