"""Which numbers an optimisation can be given."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from tllib_ancon.errors import UserError

AT_LEAST_ONE = (
    *("epochs", "batch_size", "accumulation_steps", "iters_per_epoch"),
    *("bottleneck_dim", "randomized_dim", "print_freq"),
)
NOT_NEGATIVE = ("workers", "weight_decay", "lr_gamma", "lr_decay")
FRACTIONS = ("hold_out", "momentum")


def check_ranges(options: Any) -> None:
    """Refuse options of a training that are out of range; those that it does not have are passed over.

    Raises:
        UserError: an option that is out of range (its flag, what is expected, what was given)
    """
    for name in AT_LEAST_ONE:
        _require(getattr(options, name, 1) >= 1, options, name, "at least 1")
    for name in NOT_NEGATIVE:
        _require(0 <= getattr(options, name, 0) < math.inf, options, name, "at least 0 and finite")
    for name in FRACTIONS:
        _require(0 <= getattr(options, name, 0) < 1, options, name, "at least 0 and below 1")
    _require(0 < options.lr < math.inf, options, "lr", "above 0 and finite")


def require_batch_statistics(model: nn.Module, batch_size: int) -> None:
    """Refuse a batch of one image where the model needs statistics over images.

    Raises:
        UserError: a batch of one in a model with batch-norm over features
    """
    if batch_size == 1 and any(isinstance(module, nn.BatchNorm1d) for module in model.modules()):
        raise UserError("batch-norm needs the statistics of more than one image; pass --batch-size 2 or more")


def _require(satisfied: bool, options: Any, name: str, expected: str) -> None:
    if not satisfied:
        raise UserError(f"--{name.replace('_', '-')} must be {expected}, got {getattr(options, name)}")
