"""Plain self-training: one-hot pseudo-labels and the cross-entropy against them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """(B,) int64 -> (B, K) float32."""
    return torch.zeros(len(labels), num_classes, device=labels.device).scatter_(1, labels.unsqueeze(1), 1.0)


class OneHotPseudoLabel(nn.Module):
    """The pseudo-label of plain self-training, E_1(argmax_k f_k) (Lee, 2013).

    Inputs: indices (B,), ignored; logits (B, K); pseudo_labels (optional) (B,) int64 to use instead;
    probabilities, ignored

    Outputs: (B, K) float32
    """

    @torch.no_grad()
    def forward(
        self,
        indices: Tensor,
        logits: Tensor,
        pseudo_labels: Tensor | None = None,
        probabilities: Tensor | None = None,
    ) -> Tensor:
        labels = logits.argmax(1) if pseudo_labels is None else pseudo_labels
        return one_hot(labels, logits.shape[1])


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean over the batch of H(f, ỹ) = - Σ_k ỹ_k log f_k for targets (B, K) of any mass; a float32 scalar."""
    return -(targets * logits.float().log_softmax(1)).sum(1).mean()
