"""The type and shape of a batch of network inputs, a tensor (B, ...)."""

import torch
from torch import Tensor


def with_floats_as(batch: Tensor, dtype: torch.dtype) -> Tensor:
    """A batch of floats in this type; integers stay."""
    return batch.to(dtype) if batch.is_floating_point() else batch
