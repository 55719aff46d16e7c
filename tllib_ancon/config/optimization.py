"""The optimiser, its schedule and the length of a training."""

from typing import Annotated, Literal

from pydantic import Field

from tllib_ancon.config.settings import UNREAD, Flag, Settings

RATES = {"sgd": 0.01, "adamw": 2e-4}
"""Optimiser -> learning rate of new layers by default."""


class OptimizationConfig(Settings):
    """The optimiser, its schedule and the length of a training."""

    FLAG = Flag(group="optimization")

    batch_size: Annotated[int | None, Flag("-b", metavar="B", common=True)] = Field(None, ge=1)
    """images in a step, in each process; by default 64, or all where there are fewer"""
    epochs: Annotated[int, Flag(common=True)] = Field(30, ge=1)
    """Passes over the images."""
    optimizer: Literal["sgd", "adamw"] = UNREAD
    """by default adamw for a network that normalises by layer-norm and not by batch-norm, as transformers do, else
    sgd"""
    lr: Annotated[float, Flag("--learning-rate", common=True)] = Field(UNREAD, gt=0)
    """Learning rate of new layers; a pre-trained backbone has a tenth of it. Default: 0.01, 0.0002 with
    `optimizer=adamw`, 0.001 with `batch_norm=source`"""
    lr_gamma: float = Field(10.0, ge=0)
    """gamma of the learning rate lr (1 + gamma step/steps)^-decay, for cdan and mdd lr (1 + gamma step)^-decay"""
    lr_decay: float = Field(0.75, ge=0)
    """exponent of the learning rate's decay"""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Nesterov momentum of SGD; of AdamW the decay of the mean gradient"""
    weight_decay: Annotated[float, Flag("--wd")] = Field(1e-3, ge=0)
    """weight decay; AdamW spares norms and biases"""
    hold_out: float = Field(0.1, ge=0, lt=1)
    """share of the images in the hold-out, which is not trained on and selects the epoch"""
    mixed_precision: Literal["no", "fp16", "bf16"] | None = None
    """floating-point type of the network's arithmetic; no is float32; by default bf16 on a GPU that has it, else no"""
    channels_last: bool | None = None
    """channels last in memory; by default on for networks with max-pooling or with eight 2-D convolutions or more"""
    compile: bool = False
    """compile the network by torch.compile, which needs Triton, or on a CPU a C++ compiler"""
    fused: bool | None = None
    """make a step of the optimiser in one kernel; by default on for networks of a million weights or more"""
