"""Checks of what a step receives, none of which waits for the device."""

from __future__ import annotations

import torch
from torch import Tensor

from tllib_ancon.errors import UserError

INDEX_DTYPES = (torch.int64, torch.int32)
"""Indexing takes uint8 for a mask, and no other integers."""


def check_visit(indices: Tensor, logits: Tensor, num_samples: int, num_classes: int) -> None:
    """Raise :class:`UserError` unless ``indices`` is (B,) within ``[0, num_samples)`` and ``logits`` is (B, K).

    The range is checked when the indices are on the CPU, where a loader delivers them; on a device the
    check would stall every step, and the indexing kernel itself stops on a bad index.
    """
    if logits.shape[1:] != (num_classes,):
        raise UserError(f"logits have shape {tuple(logits.shape)}; expected (batch, {num_classes})")
    if indices.shape != logits.shape[:1]:
        raise UserError(
            f"indices have shape {tuple(indices.shape)}; expected ({logits.shape[0]},), one per row of logits"
        )
    check_dtype(indices)
    if indices.is_cpu and len(indices):
        positions = indices.tolist()
        lowest, highest = min(positions), max(positions)
        if lowest < 0 or highest >= num_samples:
            raise UserError(
                f"index {lowest if lowest < 0 else highest} is outside [0, {num_samples}): num_samples must be "
                "the size of the whole target set and every index the position of its image in it"
            )


def check_dtype(indices: Tensor) -> None:
    """Raise :class:`UserError` unless ``indices`` are int64 or int32."""
    if indices.dtype not in INDEX_DTYPES:
        raise UserError(f"indices have dtype {indices.dtype}; expected int64 or int32")
