"""The type and shape of a batch of network inputs, a tensor (B, ...)."""

from typing import Any

import torch
from torch import Tensor


def with_floats_as(batch: Tensor, dtype: torch.dtype) -> Tensor:
    """A batch of floats in this type; integers stay."""
    return batch.to(dtype) if batch.is_floating_point() else batch


def form_of(batch: Tensor) -> list[Any]:
    """Type and shape of one sample as JSON: ``["float32", 3, 224, 224]``."""
    return [str(batch.dtype).removeprefix("torch."), *batch.shape[1:]]


def zeros_of(form: list[Any], count: int) -> Tensor:
    """A batch of zeros of the :func:`form_of` samples."""
    dtype, *shape = form
    return torch.zeros(count, *shape, dtype=getattr(torch, dtype))
