"""Early-learning regularisation."""

from typing import Any

import torch
from torch import Tensor

from tllib_ancon.config.arguments import validated
from tllib_ancon.config.types import BelowOne, NotNegative, Number
from tllib_ancon.self_training.checks import FixedPrecision, check_visit, finite_rows
from tllib_ancon.self_training.method import Method, Visit, option_of
from tllib_ancon.self_training.registry import register

SMALLEST_PROBABILITY = 1e-4


class EarlyLearningRegularization(FixedPrecision):
    r"""Keeps predictions near their own moving average, by a loss added to the main one.

    .. math::
        t(x) ← β t(x) + (1 - β) f(x) / Σ_k f_k(x),   L = coefficient · E[log(1 - <f(x), t(x)>)]

    with f the softmax clamped to [1e-4, 1 - 1e-4]. t is updated with the current prediction before the loss is taken
    and gets no gradient. In evaluation mode it is not updated; a row with NaN or infinity never updates it.

    Args:
        num_samples, num_classes (int): N images of the whole target set, K classes
        coefficient (float): weight of the loss, at least 0. Default: 3.0
        beta (float): β in [0, 1). Default: 0.9

    Inputs:
        - indices: (B,) int64 or int32 in [0, N)
        - logits: (B, K)
        - predictions (optional): (B, K) logits that the average t is updated with. Default: ``logits``

    Outputs: scalar loss, at most 0

    Source: Liu et al., "Early-Learning Regularization Prevents Memorization of Noisy Labels", NeurIPS 2020; for
    source-free adaptation Yi et al., ICLR 2023.
    """

    targets: Tensor

    @validated
    def __init__(
        self,
        num_samples: Number,
        num_classes: Number,
        coefficient: NotNegative = 3.0,
        beta: BelowOne = 0.9,
    ):
        super().__init__()
        self.coefficient = coefficient
        self.beta = beta
        self.register_buffer("targets", torch.zeros(num_samples, num_classes))

    def forward(self, indices: Tensor, logits: Tensor, predictions: Tensor | None = None) -> Tensor:
        check_visit(indices, logits, self.targets.shape)
        rows = indices.to(logits.device, non_blocking=True)
        current = _clamped(logits)
        targets = self.targets[rows]
        if self.training:
            update = current.detach() if predictions is None else _clamped(predictions)
            distribution = update / update.sum(1, keepdim=True)
            moved = self.beta * targets + (1 - self.beta) * distribution
            targets = torch.where(finite_rows(update)[:, None], moved, targets)
            self.targets[rows] = targets
        return self.coefficient * (1 - (targets * current).sum(1)).log().mean()


def _clamped(logits: Tensor) -> Tensor:
    return logits.float().softmax(1).clamp(SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)


@register("+elr")
class _WithELR(Method):
    """Early-learning regularisation beside the objective of a method."""

    makes_labels = True

    elr_coefficient = option_of(
        EarlyLearningRegularization, "coefficient", help="weight of the early-learning regulariser"
    )
    elr_beta = option_of(EarlyLearningRegularization, "beta", help="decay of the early-learning regulariser's targets")

    def __init__(self, **sizes_and_options: Any):
        super().__init__(**sizes_and_options)
        self.early_learning = EarlyLearningRegularization(
            self.num_rows, self.num_classes, self.elr_coefficient, self.elr_beta
        )

    def regularizer(self, visit: Visit) -> Tensor:
        loss: Tensor = self.early_learning(visit.rows, visit.logits, visit.predictions)
        return loss
