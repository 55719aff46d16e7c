"""Early-learning regularisation."""

from __future__ import annotations

import torch
from torch import Tensor

from tllib_ancon.self_training.checks import check_visit, finite_rows, number, size
from tllib_ancon.self_training.precision import FixedPrecision

SMALLEST_PROBABILITY = 1e-4


class EarlyLearningRegularization(FixedPrecision):
    r"""Keeps predictions near their own moving average, by a loss added to the main one.

    .. math::
        t(x) ← β t(x) + (1 - β) f(x) / Σ_k f_k(x),   L = coefficient · E[log(1 - <f(x), t(x)>)]

    with f the softmax clamped to [1e-4, 1 - 1e-4]. t is updated with the current prediction before the loss is taken
    and gets no gradient. In evaluation mode it is not updated; a row with NaN or infinity never updates it.

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

    targets: Tensor

    def __init__(self, num_samples: int, num_classes: int, coefficient: float = 3.0, beta: float = 0.9):
        super().__init__()
        self.num_samples = size("num_samples", num_samples)
        self.num_classes = size("num_classes", num_classes)
        self.coefficient = number("coefficient", coefficient, at_least=0)
        self.beta = number("beta", beta, at_least=0, below=1)
        self.register_buffer("targets", torch.zeros(self.num_samples, self.num_classes))

    def forward(self, indices: Tensor, logits: Tensor) -> Tensor:
        check_visit(indices, logits, self.num_samples, self.num_classes)
        indices = indices.to(logits.device, non_blocking=True)
        predictions = logits.float().softmax(1).clamp(SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)
        targets = self._update(indices, predictions.detach()) if self.training else self.targets[indices]
        return self.coefficient * (1 - (targets * predictions).sum(1)).log().mean()

    def _update(self, indices: Tensor, predictions: Tensor) -> Tensor:
        """Bring the targets of these samples up to date and return them."""
        before = self.targets[indices]
        normalized = predictions / predictions.sum(1, keepdim=True)
        targets = self.beta * before + (1 - self.beta) * normalized
        targets = torch.where(finite_rows(predictions)[:, None], targets, before)
        self.targets[indices] = targets
        return targets
