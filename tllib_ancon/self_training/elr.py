"""Early-learning regularisation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tllib_ancon.errors import UserError
from tllib_ancon.self_training.checks import check_visit

SMALLEST_PROBABILITY = 1e-4


class EarlyLearningRegularization(nn.Module):
    r"""Keeps predictions near their own moving average, by a loss added to the main one.

    .. math::
        t(x) ← β t(x) + (1 - β) f(x) / Σ_k f_k(x),   L = coefficient · E[log(1 - <f(x), t(x)>)]

    with f the softmax clamped to [1e-4, 1 - 1e-4]. t is updated with the current prediction before the loss is taken
    and gets no gradient.

    Args:
        num_samples (int): N, images of the whole target set
        num_classes (int): K
        coefficient (float): weight of the loss, at least 0. Default: 3.0
        beta (float): β in [0, 1). Default: 0.9

    Inputs:
        - indices: (B,) int64 or int32 in [0, N)
        - logits: (B, K)

    Outputs: scalar loss, at most 0

    Raises:
        UserError: shapes that do not fit, an index out of range, a parameter out of range

    Source: Liu et al., "Early-Learning Regularization Prevents Memorization of Noisy Labels", NeurIPS 2020; for
    source-free adaptation Yi et al., ICLR 2023.
    """

    def __init__(self, num_samples: int, num_classes: int, coefficient: float = 3.0, beta: float = 0.9):
        super().__init__()
        if coefficient < 0:
            raise UserError(f"ELR coefficient {coefficient}: expected a value of at least 0")
        if not 0 <= beta < 1:
            raise UserError(f"ELR beta {beta}: expected a value in [0, 1)")
        self.num_samples = num_samples
        self.num_classes = num_classes
        self.coefficient = coefficient
        self.beta = beta
        self.register_buffer("targets", torch.zeros(num_samples, num_classes))

    def forward(self, indices: Tensor, logits: Tensor) -> Tensor:
        check_visit(indices, logits, self.num_samples, self.num_classes)
        indices = indices.to(logits.device, non_blocking=True)
        predictions = logits.float().softmax(1).clamp(SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)
        with torch.no_grad():
            normalized = predictions / predictions.sum(1, keepdim=True)
            targets = self.beta * self.targets[indices] + (1 - self.beta) * normalized
            self.targets[indices] = targets
        return self.coefficient * (1 - (targets * predictions).sum(1)).log().mean()
