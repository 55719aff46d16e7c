"""A batch of network inputs: a tensor (B, ...)."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor

Batch: TypeAlias = Tensor
"""Inputs of B samples."""


def to_device(batch: Tensor, device: torch.device) -> Tensor:
    """The batch on a device. A copy from pinned memory to a GPU does not wait."""
    return batch.to(device, non_blocking=True)


def with_floats_as(batch: Tensor, dtype: torch.dtype) -> Tensor:
    """A batch of floats in this type; integers stay."""
    return batch.to(dtype) if batch.is_floating_point() else batch


def are_images(batch: Tensor) -> bool:
    """Whether it has the shape (B, C, H, W)."""
    return batch.ndim == 4


def shape_text(batch: Tensor) -> str:
    """The shape of a batch, as an error shows it."""
    return str(tuple(batch.shape))


def form_of(batch: Tensor) -> list[Any]:
    """Type and shape of one sample as JSON: ``["float32", 3, 224, 224]``."""
    return [str(batch.dtype).removeprefix("torch."), *batch.shape[1:]]


def zeros_of(form: list[Any], count: int) -> Tensor:
    """A batch of zeros of the :func:`form_of` samples."""
    dtype, *shape = form
    return torch.zeros(count, *shape, dtype=getattr(torch, dtype))
