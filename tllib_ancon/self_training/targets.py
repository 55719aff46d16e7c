"""What a loss accepts as its target, in one form."""

from __future__ import annotations

import torch
from torch import Tensor

from tllib_ancon.errors import UserError


def as_weights(targets: Tensor, logits: Tensor) -> Tensor:
    """Each class's weight, (B, K) float32 without gradient, from such weights or from (B,) integer classes.

    Raises:
        UserError: another shape or type; on the CPU, where the check is free, a class outside [0, K)
    """
    if targets.shape == logits.shape:
        return targets.detach().float()
    batch, num_classes = logits.shape
    if targets.shape != (batch,) or targets.is_floating_point() or targets.is_complex():
        raise UserError(
            f"targets have shape {tuple(targets.shape)} and dtype {targets.dtype}; "
            f"expected ({batch}, {num_classes}) weights or ({batch},) integer classes"
        )
    if targets.device.type == "cpu" and batch and not 0 <= targets.min() <= targets.max() < num_classes:
        raise UserError(f"a target lies outside [0, {num_classes}), the classes that the logits have")
    return torch.nn.functional.one_hot(targets.long(), num_classes).float()


def check_logits(logits: Tensor) -> None:
    """Raise :class:`UserError` unless ``logits`` is (batch, classes)."""
    if logits.ndim != 2:
        raise UserError(f"logits have shape {tuple(logits.shape)}; expected (batch, classes)")
