"""SGD and the two learning-rate decays: the paper's and TLLib's."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from tllib_ancon.errors import UserError


def create_sgd(groups: list[dict[str, Any]], momentum: float, weight_decay: float, fused: bool = False) -> SGD:
    """SGD with Nesterov momentum (plain without momentum) over parameter groups that carry their own ``lr``.

    Args:
        groups: parameters and learning rates
        momentum: in [0, 1)
        weight_decay: of every group
        fused: update each group in one kernel

    Raises:
        UserError: ``fused`` on a device or a torch that has no such kernel
    """
    try:
        return SGD(
            groups, lr=0.0, momentum=momentum, weight_decay=weight_decay, nesterov=momentum > 0, fused=fused or None
        )
    except RuntimeError as error:
        if not fused:
            raise
        raise UserError(f"this device has no fused SGD ({error}); leave out `fused`") from error


def require_batch_statistics(model: nn.Module, batch_size: int) -> None:
    """Refuse a batch of one image where the model needs statistics over images.

    Raises:
        UserError: a batch of one in a model with batch-norm over features
    """
    if batch_size == 1 and any(isinstance(module, nn.BatchNorm1d) for module in model.modules()):
        raise UserError("batch-norm needs the statistics of more than one image; pass a `batch_size` of 2 or more")


def relative_decay(
    optimizer: Optimizer, gamma: float, decay: float, total_steps: int, warmup_steps: int = 0
) -> LambdaLR:
    """lr · (1 + gamma · step / total_steps)^-decay: SHOT's and the paper's, with gamma 10 and decay 0.75.

    In the first ``warmup_steps`` that is multiplied by (step + 1) / (warmup_steps + 1).
    """

    def factor(step: int) -> float:
        warmed: float = min(1.0, (step + 1) / (warmup_steps + 1))
        decayed: float = (1 + gamma * step / total_steps) ** -decay
        return warmed * decayed

    return LambdaLR(optimizer, factor)


def absolute_decay(optimizer: Optimizer, gamma: float, decay: float) -> LambdaLR:
    """lr · (1 + gamma · step)^-decay: that of TLLib's scripts."""
    return LambdaLR(optimizer, lambda step: (1 + gamma * step) ** -decay)
