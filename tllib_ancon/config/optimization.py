"""The optimiser, its schedule and the length of a training."""

from typing import Annotated, Literal

from tllib_ancon.config.settings import DECIDED_LATER, Flag, Settings
from tllib_ancon.config.types import BelowOne, NotNegative, Number, Positive

RATES = {"sgd": 0.01, "adamw": 2e-4}
"""Optimiser -> learning rate of new layers by default."""


class OptimizationConfig(Settings):
    """The optimiser, its schedule and the length of a training."""

    FLAG = Flag(group="optimization")

    batch_size: Annotated[Number, Flag("-b", metavar="B", common=True)] = DECIDED_LATER
    """images in a step, in each process"""
    epochs: Annotated[Number, Flag(common=True)] = DECIDED_LATER
    """Passes over the images."""
    optimizer: Literal["sgd", "adamw"] = DECIDED_LATER
    """optimiser: SGD with Nesterov momentum, or AdamW"""
    lr: Annotated[Positive, Flag("--learning-rate", common=True)] = DECIDED_LATER
    """Learning rate of new layers; a pre-trained backbone has a tenth of it."""
    lr_gamma: NotNegative = DECIDED_LATER
    """gamma of the learning rate lr (1 + gamma step/steps)^-decay, for cdan and mdd lr (1 + gamma step)^-decay"""
    lr_decay: NotNegative = 0.75
    """exponent of the learning rate's decay"""
    momentum: BelowOne = 0.9
    """Nesterov momentum of SGD; of AdamW the decay of the mean gradient"""
    weight_decay: Annotated[NotNegative, Flag("--wd")] = DECIDED_LATER
    """weight decay; AdamW spares norms and biases"""
    hold_out: BelowOne = DECIDED_LATER
    """share of the images in the hold-out, which is not trained on and selects the epoch"""
    mixed_precision: Literal["no", "fp16", "bf16"] = DECIDED_LATER
    """floating-point type of the network's arithmetic; no is float32"""
