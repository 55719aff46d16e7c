"""Plain self-training: one-hot pseudo-labels and the cross-entropy against them."""

from __future__ import annotations

import torch
from torch import Tensor


def one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """(B,) int64 -> (B, K) float32."""
    return torch.zeros(len(labels), num_classes, device=labels.device).scatter_(1, labels.unsqueeze(1), 1.0)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean over the batch of H(f, ỹ) = - Σ_k ỹ_k log f_k for targets (B, K) of any mass; a float32 scalar."""
    return -(targets * logits.float().log_softmax(1)).sum(1).mean()
