"""A batch of network inputs: a tensor (B, ...), or several by the names under which the network takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

Batch: TypeAlias = Tensor | dict[str, Tensor]
"""Inputs of B samples: a tensor, or a dict of tensors with B rows each."""


def tree_map(function: Callable[[Tensor], Any], batch: Any) -> Any:
    """The same structure, with the results of a function in place of the tensors."""
    if isinstance(batch, Mapping):
        return {name: tree_map(function, part) for name, part in batch.items()}
    return function(batch)


def to_device(batch: Any, device: torch.device) -> Any:
    """The batch on a device. A copy from pinned memory to a GPU does not wait."""
    return tree_map(lambda tensor: tensor.to(device, non_blocking=True), batch)


def with_floats_as(batch: Any, dtype: torch.dtype) -> Any:
    """The batch with its tensors of floats in this type; integers stay."""
    return tree_map(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, batch)


def concatenated(batches: Sequence[Any]) -> Any:
    """The rows of several batches of one structure as one batch."""
    first = batches[0]
    if isinstance(first, Mapping):
        return {name: torch.cat([batch[name] for batch in batches]) for name in first}
    return torch.cat(list(batches))


def num_rows(batch: Any) -> int:
    """B, the number of samples."""
    if isinstance(batch, Mapping):
        first_tensor = next(iter(batch.values()))
    else:
        first_tensor = batch
    return len(first_tensor)


def are_images(batch: Any) -> bool:
    """Whether it is one tensor (B, C, H, W)."""
    return isinstance(batch, Tensor) and batch.ndim == 4


def shape_text(batch: Any) -> str:
    """The shape of a batch, or the shapes of its tensors by name, as an error shows them."""
    return str(tree_map(lambda tensor: tuple(tensor.shape), batch))


def form_of(batch: Any) -> Any:
    """Type and shape of one sample as JSON: ``["float32", 3, 224, 224]``, or such a list by each name."""
    return tree_map(lambda tensor: [str(tensor.dtype).removeprefix("torch."), *tensor.shape[1:]], batch)


def zeros_of(form: Any, count: int) -> Any:
    """A batch of zeros of the :func:`form_of` samples."""
    if isinstance(form, Mapping):
        return {name: zeros_of(part, count) for name, part in form.items()}
    dtype, *shape = form
    return torch.zeros(count, *shape, dtype=getattr(torch, dtype))
